#!/bin/busybox sh
# meet.sh SERVER CLIENT: starts a server, and a client again and again until the server listens or has exited.
$1 &
server=$!
until $2; do
    kill -0 $server || exit 1
    sleep 0.2
done
wait $server
