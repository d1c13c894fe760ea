"""Mooncake's transfer engine: writes four megabytes to the peer and reads them back, checked on both sides."""

import ctypes
import sys

from mooncake.engine import TransferEngine

from meeting import collect, pattern, publish

LENGTH = 4 << 20

role, directory, own, device = sys.argv[1:]
engine = TransferEngine()
assert engine.initialize(own, "P2PHANDSHAKE", "rdma", device) == 0
memory = engine.allocate_managed_buffer(LENGTH)
assert memory > 0

if role == "target":
    address = f"{own}:{engine.get_rpc_port()} {memory}"
    publish(directory, "mooncake-target", address.encode())
    print("ready", flush=True)
    collect(directory, "mooncake-written")
    assert ctypes.string_at(memory, LENGTH) == pattern(LENGTH, 7)
    print("the data is right")
else:
    peer, remote = collect(directory, "mooncake-target").decode().split()
    ctypes.memmove(memory, pattern(LENGTH, 7), LENGTH)
    assert engine.transfer_sync_write(peer, memory, int(remote), LENGTH) == 0
    ctypes.memset(memory, 0, LENGTH)
    assert engine.transfer_sync_read(peer, memory, int(remote), LENGTH) == 0
    assert ctypes.string_at(memory, LENGTH) == pattern(LENGTH, 7)
    publish(directory, "mooncake-written", b"")
