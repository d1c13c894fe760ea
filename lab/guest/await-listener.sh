#!/bin/dash
# await-listener PIDFILE: waits until that process listens, with rdma_cm or with a socket.

# Ports 7001 to 7003 belong to the command loops, not to the process.
sockets() {
    grep -h ' 0A ' /proc/net/tcp /proc/net/tcp6 | grep -vq ':1B5[9AB] '
}

listens() {
    { rdma resource show cm_id | grep -q LISTEN; } || sockets
}

# The kernel says LISTEN a little before it does so. Then the server sleeps.
sleeps() {
    grep -q '^State:.S' "/proc/$(cat "$1")/status"
}

until listens && sleeps "$1"; do
    sleep 0.05
done
