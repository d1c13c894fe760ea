# Runs the two halves of a recipe in a copy of a system that ends with them.
#
# Usage: fresh-system.sh SYSTEM PLACE JOB, in a mount and a process namespace of its own.
#
# SYSTEM is the directory of the system, PLACE an empty directory, and JOB has the files of the job with two more:
# root.sh prepares the system as root, with the network as it is; user.sh is run by a user without any
# privilege, who has a loopback interface and nothing else.

set -e
system=$1 place=$2 job=$3
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

mount --make-rprivate /
mount -t tmpfs -o mode=0755 tmpfs "$place"
mkdir "$place/changes" "$place/work" "$place/root" "$place/job"
cp -r "$job/." "$place/job"
mount -t overlay -o "lowerdir=$system,upperdir=$place/changes,workdir=$place/work" overlay "$place/root"
cd "$place/root"

# Nothing of ours or of other users is seen, but what belongs to the system.
for directory in *; do
    case $directory in
    bin | dev | etc | lib* | proc | sbin | sys | usr | var) ;;
    *) [ -L "$directory" ] || [ ! -d "$directory" ] || mount -t tmpfs -o mode=0755 tmpfs "$directory" ;;
    esac
done
chmod 1777 tmp
rm -f etc/resolv.conf
cp -L /etc/resolv.conf etc/resolv.conf
echo 'Acquire::Retries "3";' > etc/apt/apt.conf.d/99retries
mount -t proc proc proc
mount --rbind /dev dev
mv "$place/job" tmp/job
chown -R 1001:1001 tmp/job

in_room="env -i PATH=$path LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive"
chroot . $in_room HOME=/root sh -e -c 'cd /tmp/job && . ./root.sh'

unprivileged="setpriv --reuid=1001 --regid=1001 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
unshare --net sh -e -c "
ip link set lo up
mount -t sysfs sysfs sys
exec chroot . $unprivileged $in_room HOME=/tmp/job bash -e -c 'cd /tmp/job && . ./user.sh'
"
