#pragma once

#include <glib.h>

#include "backend/agent_client.h"

/* Where the output of a program goes: live to hutch's own stdout and stderr, or kept for JSON. Both
 * are sinks of agent_client_relay(), whose `user` begins with the struct named here. */

/* Live: byte for byte, as it comes. hutch never blocks in a write that a reader could hold up. */
typedef struct {
    int error_number; /* why no more could be written (EPIPE: the reader is gone), 0 */
    AgentStream failed;
    gboolean regular[N_AGENT_STREAMS];
    gboolean one_file; /* stdout and stderr are the same file or terminal */
    const char *cap;   /* as the user would write it, for the line about what was dropped */
} LiveStreams;

void live_streams_init(LiveStreams *live, const char *cap);
extern const AgentSink live_sink;

/* Kept: bounded by the execution's cap, which the relay enforces. */
typedef struct {
    struct {
        GByteArray *bytes;
        gsize gap_at;
        guint64 dropped_bytes; /* between [0, gap_at) and the rest */
    } streams[N_AGENT_STREAMS];
} KeptStreams;

void kept_streams_init(KeptStreams *kept);
void kept_streams_clear(KeptStreams *kept);
extern const AgentSink kept_sink;

/* One stream as valid UTF-8. What was dropped is replaced by a line that says how much; a character
 * that the cut went through counts as dropped. */
GString *kept_streams_text(const KeptStreams *kept, AgentStream stream);
