#!/bin/bash
# What code sees of its surroundings: who it is, what it may write, what it may use. Run it with
#   hutch run examples/inventory.sh
set -u
echo "user      $(id -un) (uid $(id -u)), host name $(hostname)"
echo "folder    $PWD"
echo "processes $(find /proc -maxdepth 1 -name '[0-9]*' | wc -l) visible, $(nproc) processors"
echo "network   $(awk -F: 'NR > 2 { gsub(/ /, "", $1); print $1 }' /proc/net/dev | xargs)"
for folder in /workspace /tmp /home/user /dev/shm /usr /etc; do
    if touch "$folder/.probe" 2>/dev/null; then
        rm -f "$folder/.probe"
        echo "writable  $folder ($(df -h --output=avail "$folder" | tail -n 1 | xargs) free)"
    else
        echo "read-only $folder"
    fi
done
