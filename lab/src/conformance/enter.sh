# Becomes a program in another system, which shares devices, network and two directories with this one.
#
# Usage: enter.sh SYSTEM DIRECTORY DIRECTORY PROGRAM ARGUMENT..., in a mount namespace of its own.

set -e
system=$1 first=$2 second=$3
shift 3

mount --make-rprivate /
for directory in "$first" "$second" /dev /proc /sys; do
    mkdir -p "$system$directory"
    mount --rbind "$directory" "$system$directory"
done
exec chroot "$system" env PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
