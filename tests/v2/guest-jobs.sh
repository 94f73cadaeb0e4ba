# Second part of the guest, process 1 after switch_root: cgroups and users as systemd would have made
# them, then the jobs, one after the other. How a job's end and output get out:
#   port `ctl`         lines of ours: `ready`, `start N`, `end N STATUS`, `done`
#   ports `out`, `err` the jobs' standard output and error, byte for byte
# A job sees pipes, not ports: a port can be opened only once, and programs do open /dev/stderr.
set -eu
export PATH=/run/v2/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cg=/sys/fs/cgroup

port() {
    for dir in /sys/class/virtio-ports/*; do
        if [ "$(cat "$dir/name")" = "$1" ]; then echo "/dev/${dir##*/}"; return; fi
    done
    echo "guest: no port $1" >/dev/console
    exit 1
}

# --- Streams
mkfifo -m 666 /run/v2/out /run/v2/err
cat /run/v2/out >"$(port out)" & cat_out=$!
cat /run/v2/err >"$(port err)" & cat_err=$!
exec 3>"$(port ctl)" 5>/run/v2/out 6>/run/v2/err 0</dev/null

# --- The machine
hostname v2guest
ip link set lo up
mount -t cgroup2 -o nsdelegate,memory_recursiveprot cgroup2 "$cg"

# systemd's tree on Debian 12. user@.service has Delegate=pids memory cpu; so the manager could hand out
# `cpu` too, but does not before a unit asks for it.
controllers() { echo "$2" >"$cg/$1/cgroup.subtree_control"; }
mkdir "$cg/init.scope"
for pid in $(cat "$cg/cgroup.procs"); do
    # Kernel threads cannot be moved, and need not.
    echo "$pid" >"$cg/init.scope/cgroup.procs" 2>/dev/null || true
done
controllers . '+cpu +memory +pids +io'
mkdir -p "$cg/system.slice" "$cg/user.slice/user-0.slice/session-1.scope"
controllers user.slice '+cpu +memory +pids'

# User with a session of its own and a user manager. $1 name, $2 uid
add_user() {
    sed -i "1i$1:x:$2:$2::/home/$1:/bin/sh" /etc/passwd
    sed -i "1i$1:x:$2:" /etc/group
    # A home on plain ext4, as homes are.
    mkdir -p "/home/$1" "/run/v2/scratch/homes/$1" "/run/user/$2"
    mount --bind "/run/v2/scratch/homes/$1" "/home/$1"
    chown "$2:$2" "/home/$1" "/run/user/$2"
    chmod 700 "/home/$1" "/run/user/$2"

    slice=user.slice/user-$2.slice manager=user.slice/user-$2.slice/user@$2.service
    mkdir -p "$cg/$slice/session-2.scope" "$cg/$manager"
    controllers "$slice" '+cpu +memory +pids'
    # What `Delegate=` hands over: these and no more. memory.max and its like stay root's here,
    # and belong to the user only below, where the user made the directories.
    chown "$2:$2" "$cg/$manager"
    for file in cgroup.procs cgroup.threads cgroup.subtree_control; do
        chown "$2:$2" "$cg/$manager/$file"
    done
    ( as_user "$1" "$2" sh -c "mkdir -p $cg/$manager/init.scope $cg/$manager/app.slice/run-1.scope
        echo '+memory +pids' >$cg/$manager/cgroup.subtree_control
        echo '+memory +pids' >$cg/$manager/app.slice/cgroup.subtree_control" )
    # Somebody is at home: a manager's own cgroup is never empty.
    enter "$manager/init.scope" as_user "$1" "$2" sleep 100000 3>&- 5>&- 6>&- &
}

# These two replace the process that calls them.
as_user() {
    user=$1 uid=$2; shift 2
    exec env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="/home/$user" USER="$user" LOGNAME="$user" \
        SHELL=/bin/sh LANG=C.UTF-8 XDG_RUNTIME_DIR="/run/user/$uid" \
        /usr/bin/setpriv --reuid="$uid" --regid="$uid" --clear-groups -- "$@"
}

as_root() {
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        USER=root LOGNAME=root SHELL=/bin/sh LANG=C.UTF-8 "$@"
}

# Runs the rest in the cgroup $1, in a process of its own and nobody else's beside it.
enter() {
    dir=$cg/$1; shift
    ( sh -c 'echo $PPID' >"$dir/cgroup.procs"; "$@" )
}

# The second one's jobs run in its session, beside the delegated tree and not in it: what one gets
# who signs in by ssh. Nothing can be moved from there into the user's own tree.
add_user hutch-v2 1001
add_user hutch-v2-plain 1002

# --- Programs under test: bound to a place that every user can reach, wherever the checkout is.
. /run/v2/jobs/binds

# --- Jobs
echo ready >&3
n=0
while [ -e "/run/v2/jobs/$n" ]; do
    who=$(cat "/run/v2/jobs/$n.who")
    case $who in
    root)      set -- user.slice/user-0.slice/session-1.scope as_root ;;
    delegated) set -- user.slice/user-1001.slice/user@1001.service/app.slice/run-1.scope \
                   as_user hutch-v2 1001 ;;
    plain)     set -- user.slice/user-1002.slice/session-2.scope as_user hutch-v2-plain 1002 ;;
    esac
    echo "start $n" >&3
    status=0
    enter "$@" /bin/sh "/run/v2/jobs/$n" >&5 2>&6 3>&- 5>&- 6>&- || status=$?
    echo "end $n $status" >&3
    n=$((n + 1))
done

# Whoever is left of the jobs would hold the pipes open.
echo 1 >"$cg/user.slice/cgroup.kill"
exec 5>&- 6>&-
wait "$cat_out" "$cat_err" || true
echo done >&3
# The host ends the machine.
exec sleep 100000
