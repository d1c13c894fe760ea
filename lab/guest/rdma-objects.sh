#!/bin/sh
# Prints how many objects of each kind `rdma resource` counts more while programs run, and after they have ended. The kernel's
# device and ours must give the same output.
#   rdma-objects.sh DEVICE ADDRESS
device=$1
address=$2

counts() {
	rdma resource show "$device" | sed 's/^[0-9]*: [^ ]*: //'
}

growth() {
	text=
	set -- $before
	for word in $(counts); do
		case $word in
		[0-9]*)
			text="$text$kind $((word - $2)) "
			shift 2
			;;
		*) kind=$word ;;
		esac
	done
	echo "$text"
}

# Waits until so many objects more are counted, for at most ten seconds. A program needs time to create them.
await() {
	tries=100
	until [ "$(growth)" = "$1" ] || [ $tries = 0 ]; do
		sleep 0.1
		tries=$((tries - 1))
	done
	growth
}

none='pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0 '

# While a program runs, so many objects more should be counted.
during() {
	expected=$1
	shift
	before=$(counts)
	"$@" > /dev/null 2>&1 &
	program=$!
	echo "= $1"
	await "$expected"
	kill $program
	wait $program 2> /dev/null
	await "$none"
}

# Other programs of this machine may listen, too.
port=$((20000 + $$ % 10000))

during 'pd 1 cq 1 qp 1 cm_id 0 mr 1 ctx 1 srq 0 ' ibv_rc_pingpong -d "$device" -p $port
during 'pd 1 cq 1 qp 3 cm_id 0 mr 1 ctx 1 srq 1 ' ibv_srq_pingpong -d "$device" -q 3 -p $port

# The server has two ids. Each side has the domain of librdmacm and one of its own.
before=$(counts)
rping -s -a "$address" -p $port > /dev/null 2>&1 &
server=$!
until rdma resource show cm_id 2> /dev/null | grep -q "$address:$port"; do
	kill -0 $server || exit 1
	sleep 0.1
done
echo '= rping'
rping -c -a "$address" -p $port > /dev/null 2>&1 &
client=$!
await 'pd 4 cq 2 qp 2 cm_id 3 mr 7 ctx 2 srq 0 '
kill $client $server
wait $client $server 2> /dev/null
await "$none"
