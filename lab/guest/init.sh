#!/bin/dash
# The first process of the kernel peer: brings up the interface and rdma_rxe, then runs the commands it
# receives. The kernel's command line names the addresses: peer.ipv4=A/N peer.ipv6=A/N peer.mtu=N.
# This is not busybox's shell because that one prefers its own `ip` to the real one.

/bin/busybox --install -s /usr/bin
export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
echo 1 > /proc/sys/kernel/printk
ulimit -l unlimited

for word in $(cat /proc/cmdline); do
    case $word in
    peer.ipv4=*) ipv4=${word#*=} ;;
    peer.ipv6=*) ipv6=${word#*=} ;;
    peer.mtu=*) mtu=${word#*=} ;;
    peer.control=*) control=${word#*=} ;;
    esac
done

# The emulated machine: everything is a module.
load_modules() {
    echo /usr/bin/modprobe > /proc/sys/kernel/modprobe
    for module in virtio_pci virtio_net virtio_console crc32_generic ib_uverbs rdma_ucm rdma_rxe sch_netem; do
        modprobe $module || echo "init: no module $module"
    done
}

# What the kernel itself says about every packet's ICRC: 0 is good.
watch_icrc() {
    mount -t tracefs trace /sys/kernel/tracing
    echo 'r:icrc rxe_icrc_check ret=$retval:s32' > /sys/kernel/tracing/kprobe_events
    echo 'hist:keys=ret' > /sys/kernel/tracing/events/kprobes/icrc/trigger
}

take_commands_from_serial_ports() {
    for port in /dev/vport0p*; do
        command-loop "${port#/dev/vport0p}" 0<> "$port" 1>&0 &
    done
}

# The kernel as a program has a second interface for that.
take_commands_from_network() {
    ip link set vec1 up
    ip addr add "$control" dev vec1
    for number in 1 2 3; do
        nc -l -p 700$number -e /usr/bin/command-loop $number &
    done
}

ip link set lo up
if [ -n "$control" ]; then
    ip link set vec0 name eth0
else
    load_modules
fi
ip link set eth0 mtu "$mtu" up
ip addr add "$ipv4" dev eth0
ip addr add "$ipv6" dev eth0 nodad
rdma link add rxe0 type rxe netdev eth0

if [ -n "$control" ]; then
    take_commands_from_network
else
    watch_icrc
    take_commands_from_serial_ports
fi
while :; do
    sleep 3600
done
