#!/bin/sh
# Gives a running tgtd a disk, and asks for it over iSER: iser.sh ADDRESS DIRECTORY
set -e
name=iqn.2026-01.test.rocinante:disk
url="iser://$1:3260/$name/1"
size=4194304
head -c "$size" /dev/zero > "$2/disk"
tgtadm --lld iser --mode target --op new --tid 1 --targetname "$name"
tgtadm --lld iser --mode logicalunit --op new --tid 1 --lun 1 --backing-store "$2/disk"
tgtadm --lld iser --mode target --op bind --tid 1 --initiator-address ALL
for program in iscsi-inq iscsi-readcapacity16; do
	tgtadm --lld iser --mode target --op bind --tid 1 \
		--initiator-name "iqn.2007-10.com.github:sahlberg:libiscsi:$program"
	"$program" "$url"
done
