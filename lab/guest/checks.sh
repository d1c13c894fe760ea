#!/bin/busybox sh
# The first process of an emulated machine: it runs one check after the other and switches the machine off. The
# checks are added below. Around the output of each there is a line with its name, and a line with its exit code.

/bin/busybox --install -s /usr/bin
export PATH=/opt/roci:/usr/bin:/usr/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
echo 1 > /proc/sys/kernel/printk
ulimit -l unlimited
ip link set lo up
cd /tmp

check() {
    echo "=== $1"
    timeout 600 sh -c "$2" 2>&1
    echo "=== exit $? of $1"
}

