#!/bin/sh
# Lists the files of a device in /sys and /dev, one per line: kind, mode, path and content. The kernel's device
# and ours must give the same output.
#   device-files.sh DEVICE
# A table has hundreds of places: only the first and an empty one are listed. `*` stands for what belongs
# to this machine alone. Power management, which depends on how the kernel was built, is left out.
device=$1

value() {
	case $1 in
	*_guid | */fw_ver | */node_desc | */parent | */gids/0 | */ndevs/0 | */rate | */cm_* | */hw_counters/* | */dev)
		echo '*' && return ;;
	esac
	if text=$(cat "$1" 2>&1); then
		echo "$text" | head -n 1
	else
		echo "error ${text##*: }"
	fi
}

line() {
	if [ -h "$1" ]; then
		target=$(readlink "$1")
		echo "link $1 ${target##*/}"
	elif [ -d "$1" ]; then
		echo "directory $(stat -c %a "$1") $1"
	elif [ -c "$1" ]; then
		echo "characters $(stat -c %a "$1") $1"
	else
		echo "file $(stat -c %a "$1") $1 $(value "$1")"
	fi
}

class=/sys/class
for start in $class/infiniband $class/infiniband/"$device"/ $class/infiniband_verbs \
	$class/infiniband_verbs/uverbs0/ $class/misc/rdma_cm $class/misc/rdma_cm/ /dev/infiniband; do
	find $start | sed 's|//*|/|g' | LC_ALL=C sort | while read -r path; do
		case $path in
		*/gids/0 | */types/0 | */ndevs/0 | */gids/200 | */types/200 | */ndevs/200) ;;
		*/gids/* | */types/* | */ndevs/* | */power | */power/*) continue ;;
		esac
		line "$path"
	done
done
