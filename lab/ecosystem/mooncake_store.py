"""Mooncake's store: a master and a node with memory; a client puts values there and gets them back."""

import os
import subprocess
import sys
import time

import mooncake
from mooncake.store import MooncakeDistributedStore

from meeting import pattern

PORT = 50051
MEMORY = 64 << 20
BUFFER = 16 << 20
KEYS = 8

role, own, server, device = sys.argv[1:]


def start_master():
    program = os.path.join(os.path.dirname(mooncake.__file__), "mooncake_master")
    os.chmod(program, 0o755)
    return subprocess.Popen([program, "-rpc_port", str(PORT), "-metrics_port", str(PORT + 1)])


def join(memory):
    """A node that starts before the master listens is rejected."""
    end = time.monotonic() + 60
    while True:
        store = MooncakeDistributedStore()
        code = store.setup(own, "P2PHANDSHAKE", memory, BUFFER, "rdma", device, f"{server}:{PORT}")
        if code == 0:
            return store
        assert time.monotonic() < end, code
        time.sleep(0.1)


if role == "node":
    master = start_master()
    store = join(MEMORY)
    print("the node has joined", flush=True)
    master.wait()
else:
    store = join(0)
    for key in range(KEYS):
        assert store.put(f"key{key}", pattern(100_000 + key, key + 2)) == 0
    for key in range(KEYS):
        assert store.get(f"key{key}") == pattern(100_000 + key, key + 2)
    assert store.is_exist("key3") == 1
    assert store.is_exist("another") == 0
    store.close()
    print("the data is right")
