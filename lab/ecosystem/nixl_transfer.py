"""NIXL: writes a megabyte to the other agent and reads another one back, both checked."""

import pickle
import sys

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config

from meeting import collect, pattern, publish, wait_until

LENGTH = 1 << 20

role, directory = sys.argv[1:]
agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
memory = np.zeros(2 * LENGTH, dtype=np.uint8)
agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM")
halves = [memory.ctypes.data, memory.ctypes.data + LENGTH]
halves = [agent.get_xfer_descs([(half, LENGTH, 0)], "DRAM") for half in halves]


def target():
    memory[LENGTH:] = np.frombuffer(pattern(LENGTH, 11), dtype=np.uint8)
    descriptors = [agent.get_serialized_descs(half) for half in halves]
    publish(directory, "nixl", pickle.dumps((agent.get_agent_metadata(), descriptors)))
    print("ready", flush=True)
    wait_until(lambda: agent.check_remote_xfer_done("initiator", b"written"))
    assert memory[:LENGTH].tobytes() == pattern(LENGTH, 7)
    wait_until(lambda: agent.check_remote_xfer_done("initiator", b"read"))
    print("the data is right")


def initiator():
    metadata, descriptors = pickle.loads(collect(directory, "nixl"))
    peer = agent.add_remote_agent(metadata)
    memory[:LENGTH] = np.frombuffer(pattern(LENGTH, 7), dtype=np.uint8)
    for half, operation, note in ((0, "WRITE", b"written"), (1, "READ", b"read")):
        remote = agent.deserialize_descs(descriptors[half])
        transfer = agent.initialize_xfer(operation, halves[half], remote, peer, note)
        assert agent.transfer(transfer) != "ERR"
        wait_until(lambda: agent.check_xfer_state(transfer) == "DONE")
        agent.release_xfer_handle(transfer)
    assert memory[LENGTH:].tobytes() == pattern(LENGTH, 11)


{"target": target, "initiator": initiator}[role]()
