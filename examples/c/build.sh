#!/bin/sh
# Builds the C programs beside their sources, or into the directory given as an argument.
#
# They need a C compiler and the headers of libibverbs and librdmacm, of any version:
#   apt-get install gcc libibverbs-dev librdmacm-dev
# They use the public interface only, so they run on RDMA hardware, on the kernel's Soft-RoCE, and here
# with `roci run -- examples/c/cm_sum server`.
set -e
here=$(dirname "$0")
there=${1:-$here}
flags="-std=gnu11 -O2 -g -Wall -Wextra -Werror"

cc $flags -o "$there/device_memory" "$here/device_memory.c" -libverbs
cc $flags -o "$there/cm_sum" "$here/cm_sum.c" -lrdmacm -libverbs
cc $flags -o "$there/chat" "$here/chat.c" -lrdmacm -libverbs
cc $flags -o "$there/event_loop" "$here/event_loop.c" -lrdmacm -libverbs
cc $flags -o "$there/rc_test" "$here/rc_test.c" -libverbs
cc $flags -pthread -o "$there/sync_async" "$here/sync_async.c" -libverbs
cc $flags -pthread -o "$there/watch_memory" "$here/watch_memory.c" -libverbs
