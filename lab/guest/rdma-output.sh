#!/bin/sh
# Prints the output and exit codes of iproute2's `rdma` for a device. The kernel's device and ours must give the
# same output.
#   rdma-output.sh DEVICE
# Names and numbers that belong to one machine are replaced by words: NETDEV, NUMBER, GUID. So are the values of counters
# and the numbers of objects: the kernel has objects of its own.
# What the firmware and the capabilities are, each device says for itself.
device=$1

ask() {
	echo "= rdma $*"
	rdma "$@" 2>&1 | sed -E \
		-e 's/netdev("?:? ?"?)[a-z0-9]+/netdev\1NETDEV/' \
		-e 's/(netdev_index"?:? ?)[0-9]+/\1NUMBER/' \
		-e 's/(_(pkts|request|err|deferred|downed|sends|recvs)"?:? ?)[0-9]+/\1NUMBER/g' \
		-e 's/\b(pd|cq|qp|cm_id|mr|ctx|srq)("?:? ?)[0-9]+/\1\2NUMBER/g' \
		-e 's/([0-9a-f]{4}:){3}[0-9a-f]{4}/GUID/g' \
		-e 's/"fw":"[^"]*",//' -e '/^ *"fw": /d' -e 's/fw [^ ]+ //' \
		-e 's/caps: <.*>/caps: <CAPS>/' -e 's/("caps": ?)\[.*\]/\1[CAPS]/'
	rdma "$@" > /dev/null 2>&1
	echo "exit $?"
}

ask link
ask link show
ask link show "$device/1"
ask link show "$device/2"
ask link show nosuch
ask link show -j nosuch
ask link show -j
ask -j link
ask link -jp
ask link -d
ask -d -j link
ask li list "$device/1" -p -j
ask dev
ask dev show "$device"
ask dev -j
ask dev -j -p
ask -d dev
ask -d -j -p dev
ask dev show nosuch
ask -j dev show nosuch
ask res
ask res show
ask res show "$device"
ask res list "$device" -j
ask -j res
ask -j -p res show
ask res show nosuch
ask res nosuch
ask res show cm_id dev nosuch
ask res show ctx
ask -j res show ctx
ask -j -p res show ctx
ask link delete nosuch
ask link delete
ask link add
ask link add rxe9 type
ask statistic
ask statistic show
ask statistic show link
ask statistic show link "$device/1"
ask statistic show link "$device"
ask statistic show link "$device/2"
ask statistic show link nosuch
ask statistic list link "$device/1" -j
ask -j statistic
ask -j -p statistic show link "$device/1"
ask -j statistic show link nosuch
ask nosuch
ask link nosuch
ask statistic show nosuch
