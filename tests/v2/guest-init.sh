#!/bin/busybox sh
# First program of the guest, run from the initramfs: makes a writable machine out of the host's
# read-only `/` and hands over to guest-jobs.sh by switch_root. (In a chroot no user namespace could
# be made.) What has to be written lies in overlays whose upper side is on a scratch ext4 disk.
set -eu
export PATH=/bin
/bin/busybox --install -s /bin

mkdir -p /proc /sys /dev /host /scratch
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module"; done </order

# access=any: one attach for all users; the guest's kernel checks the mode bits by itself.
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose,access=any hostroot /host
mount -t ext4 /dev/vda /scratch
# A memory limit that is hit is no news here, and the serial line is slow.
echo 0 >/proc/sys/vm/oom_dump_tasks
mkswap /dev/vdb >/dev/null
swapon /dev/vdb

for dir in etc tmp home root var; do
    [ -d "/host/$dir" ] || continue
    mkdir -p "/scratch/$dir" "/scratch/.work/$dir"
    # The upper directory's mode becomes the mode of the merged one.
    chmod "$(stat -c %a "/host/$dir")" "/scratch/$dir"
    mount -t overlay -o "lowerdir=/host/$dir,upperdir=/scratch/$dir,workdir=/scratch/.work/$dir" \
        overlay "/host/$dir"
done

# Plain ext4 where programs need O_TMPFILE (the 6.1 overlay has none) and images for loop devices.
mkdir -p /scratch/lib /host/var/lib
mount --bind /scratch/lib /host/var/lib

mount -t tmpfs -o mode=755 run /host/run
mkdir -p /host/run/lock /host/run/user /host/run/v2/scratch /host/run/v2/bin
mount --move /scratch /host/run/v2/scratch
cp /bin/busybox /host/run/v2/bin/busybox
/host/run/v2/bin/busybox --install -s /host/run/v2/bin
cp -r /jobs /guest-jobs.sh /host/run/v2/

mount --move /dev /host/dev
mkdir -p /host/dev/shm /host/dev/pts
ln -s /proc/self/fd /host/dev/fd
ln -s fd/0 /host/dev/stdin
ln -s fd/1 /host/dev/stdout
ln -s fd/2 /host/dev/stderr
mount -t tmpfs -o mode=1777,nosuid,nodev shm /host/dev/shm
mount -t devpts -o mode=620,ptmxmode=666 pts /host/dev/pts
mount --move /sys /host/sys
mount --move /proc /host/proc
exec switch_root /host /run/v2/bin/busybox sh /run/v2/guest-jobs.sh
