#!/bin/dash
# The first process of the kernel peer: brings up the interface and rdma_rxe, then runs what it is
# told. The kernel's command line names the addresses: peer.ipv4=A/N peer.ipv6=A/N peer.mtu=N.
# This is not busybox's shell because that one prefers its own `ip` to the real one.

/bin/busybox --install -s /usr/bin
export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs trace /sys/kernel/tracing
echo 1 > /proc/sys/kernel/printk
echo /usr/bin/modprobe > /proc/sys/kernel/modprobe
ulimit -l unlimited

for word in $(cat /proc/cmdline); do
    case $word in
    peer.ipv4=*) ipv4=${word#*=} ;;
    peer.ipv6=*) ipv6=${word#*=} ;;
    peer.mtu=*) mtu=${word#*=} ;;
    esac
done

for module in virtio_pci virtio_net virtio_console crc32_generic ib_uverbs rdma_ucm rdma_rxe sch_netem; do
    modprobe $module || echo "init: no module $module"
done

ip link set lo up
ip link set eth0 mtu "$mtu" up
ip addr add "$ipv4" dev eth0
ip addr add "$ipv6" dev eth0 nodad
rdma link add rxe0 type rxe netdev eth0

# What the kernel itself says about every packet's ICRC: 0 is good.
echo 'r:icrc rxe_icrc_check ret=$retval:s32' > /sys/kernel/tracing/kprobe_events
echo 'hist:keys=ret' > /sys/kernel/tracing/events/kprobes/icrc/trigger

# One seat runs one command after the other: a line comes in; a line with the exit code and the
# number of bytes goes out, and the bytes that the command printed.
seat() {
    exec 3<> "$1"
    out=/tmp/${1##*/}
    while :; do
        IFS= read -r line <&3 || { sleep 1; continue; }
        # A group of its own, so that the command can be stopped with everything it started.
        setsid dash -c 'echo $$ > '"$out"'.pid; eval "$0"' "$line" > "$out" 2> "$out.err" < /dev/null
        code=$?
        # Behind, so that no complaint stands in the middle of a line.
        cat "$out.err" >> "$out"
        echo "$code $(wc -c < "$out")" >&3
        cat "$out" >&3
    done
}

for port in /dev/vport*; do
    seat "$port" &
done
while :; do
    sleep 3600
done
