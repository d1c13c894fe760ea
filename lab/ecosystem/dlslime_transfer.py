"""DLSlime: a send, a write with immediate data and a read between two endpoints, all checked."""

import ctypes
import json
import sys

import dlslime

from meeting import collect, pattern, publish

LENGTH = 1 << 20
IMMEDIATE = 77

role, directory, device = sys.argv[1:]
peer_role = {"server": "client", "client": "server"}[role]
memory = ctypes.create_string_buffer(3 * LENGTH)
address = ctypes.addressof(memory)
endpoint = dlslime.RDMAEndpoint(device_name=device, ib_port=1, link_type="RoCE", num_qp=2)
own = endpoint.register_memory_region("memory", address, 0, 3 * LENGTH)


def part(number):
    return ctypes.string_at(address + number * LENGTH, LENGTH)


def connect():
    publish(directory, f"dlslime-{role}", json.dumps(endpoint.endpoint_info()).encode())
    print("ready", flush=True)
    peer = json.loads(collect(directory, f"dlslime-{peer_role}"))
    endpoint.connect(peer)
    return endpoint.register_remote_memory_region("memory", peer["mr_info"]["memory"])


if role == "server":
    ctypes.memmove(address + 2 * LENGTH, pattern(LENGTH, 11), LENGTH)
    connect()
    immediate = endpoint.imm_recv()
    received = endpoint.recv((address, 0, LENGTH))
    publish(directory, "dlslime-posted", b"")
    received.wait()
    immediate.wait()
    assert immediate.imm_data() == IMMEDIATE, immediate.imm_data()
    assert part(0) == pattern(LENGTH, 5)
    assert part(1) == pattern(LENGTH, 7)
    collect(directory, "dlslime-read")
    print("the data is right")
else:
    remote = connect()
    collect(directory, "dlslime-posted")
    ctypes.memmove(address, pattern(LENGTH, 5) + pattern(LENGTH, 7), 2 * LENGTH)
    endpoint.send((address, 0, LENGTH)).wait()
    endpoint.write_with_imm([(own, remote, LENGTH, LENGTH, LENGTH)], IMMEDIATE).wait()
    endpoint.read([(own, remote, 2 * LENGTH, 2 * LENGTH, LENGTH)]).wait()
    assert part(2) == pattern(LENGTH, 11)
    publish(directory, "dlslime-read", b"")
