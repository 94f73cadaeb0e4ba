#pragma once

#include <stdint.h>

/* What the control frames of wire/frame.h carry: the names of their fields. Numbers are u64, all else text unless said.
 *
 * START
 *   id              names the execution; [a-z0-9_]{1,32}. A second START of the same id is refused
 *   argv            repeated, at least one; the first that is "{script}" as a whole stands for the script's path
 *   env             repeated, NAME=VALUE: the whole environment
 *   cwd             absolute
 *   timeout_ms      wall clock (CLOCK_MONOTONIC), 0 or absent = none; at most PROTOCOL_TIME_MAX_MS
 *   grace_ms        from TERM to KILL; 0 or absent = KILL at once
 *   output_bytes    the cap, 1 to PROTOCOL_OUTPUT_MAX: head and tail kept; beyond sixteen times of it the execution is killed
 *   stdin           1 = STDIN frames follow, 0 or absent = /dev/null
 *   script_name     optional: file name of the script (no '/'), put at /tmp/run-<id>/<script_name>
 *   script_bytes    its size; that many bytes follow in SCRIPT frames, then the execution starts
 *   sole            1 = nothing else runs in this sandbox: its end is the end of every process in it. Without it the agent
 *                   needs a cgroup v2 directory (code_group) to tell what belongs to the execution, and refuses otherwise
 *   Of these id, argv, cwd and output_bytes must be there. A field that is unknown, given twice or out of its range refuses the
 *   whole START, by name. One execution runs at a time; a connection may start another after ENDED or ERROR.
 *
 * STARTED
 *   id              the program runs (exec succeeded). If it could not be started ERROR comes instead, and no ENDED
 *
 * ENDED
 *   id
 *   exit_code       present when the main program exited
 *   signal          present when a signal ended it (number)
 *   reason          absent, or why the agent ended it: "timeout", "memory", "output", "cancelled"
 *   limits_hit      repeated: "memory", "pids", "disk", "output"
 *   stdout_bytes, stderr_bytes                  what the program wrote
 *   stdout_dropped_bytes, stderr_dropped_bytes  what was dropped between head and tail
 *   wall_ms, cpu_ms, peak_memory_bytes          peak_memory_bytes absent where nobody counts it; it is the sandbox's so far
 *   left_running    1 = a process did not die within two seconds of SIGKILL (it hangs in the kernel); without exit_code and
 *                   signal that was the main program
 *
 * ERROR
 *   code            "bad_request": the request broke a rule | "failed": it was right and could not be done
 *   step            failed: what was being done, as one word: "exec", "cwd", "script", a step of base/confine.h ...
 *                   (exec with errno ENOENT: there is no such program). bad_request: the field that is wrong, or "frame"
 *   errno           its errno, 0 when there is none
 *   message         a sentence
 *   After a refused START the connection goes on, and SCRIPT, STDIN, STDIN_END and CANCEL for it are ignored. After step
 *   "frame" of anything but a START (no frame, not the agent's, input beyond its credit) the connection ends.
 */

enum {
    PROTOCOL_ID_MAX = 32,
    PROTOCOL_ARGV_MAX = 4096,           /* entries of argv and of env */
    PROTOCOL_STDIN_WINDOW = 256 * 1024, /* the client's first credit */
    PROTOCOL_SCRIPT_MAX = 16 * 1024 * 1024,
    PROTOCOL_OUTPUT_MAX = 1024 * 1024 * 1024,
};
#define PROTOCOL_TIME_MAX_MS (UINT64_C(366) * 24 * 3600 * 1000)

/* The agent's descriptors, as the launcher places them before it starts the agent with `hutch-agent KEY=VALUE...`.
 *
 *   connection=FD      a connected stream socket to the client
 *   spool=FD           memfd or unlinked file for output
 *   agent_uid, code_uid    ids inside, of user and group alike (code_uid == agent_uid: only one id exists, nothing is changed)
 *   cgroup=none|v1|v2
 *   tasks=FD,FD,...    v1: the `tasks` files that code writes "0" to before it drops its rights
 *   code_group=FD      v2, also the v2 hierarchy of a hybrid host: directory of the group code is cloned into; executions that
 *                      are not `sole` get a sub-group e-<id> in it, so it must let the agent make directories
 *   memory_events=FD   v1 memory.oom_control, v2 memory.events
 *   memory_peak=FD     v1 memory.max_usage_in_bytes, v2 memory.peak
 *   pids_events=FD     pids.events
 *   nofile, nproc, fsize_bytes, data_bytes   rlimits of the code (0 = leave as it is)
 *   cpus=N             how many processors the code may use (0 = all): its affinity
 *   first_cpu=N        the first of them, modulo those there are, so that sandboxes spread over the host
 *   tied               1 = ends when its client's connection ends
 *
 * An absent key means that the thing is not there; connection, spool and the two ids must be. The agent wipes its argument
 * list. Descriptors that are not named here (a lock, say) stay open in the agent and reach nothing that it starts. */
