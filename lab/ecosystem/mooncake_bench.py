"""Mooncake's own benchmark, whose target picks a port and tells it in its log."""

import os
import re
import subprocess
import sys

import mooncake

from meeting import collect, publish

PROGRAM = os.path.join(os.path.dirname(mooncake.__file__), "transfer_engine_bench")

role, directory, own, device = sys.argv[1:5]
command = [
    PROGRAM,
    f"-mode={role}",
    "-metadata_server=P2PHANDSHAKE",
    f"-local_server_name={own}",
    f"-device_name={device}",
    "-buffer_size=67108864",
]


def target():
    bench = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace")
    for line in bench.stderr:
        print(line, end="", flush=True)
        address = re.search(r"listening on ([0-9.]+:[0-9]+)", line)
        if address:
            publish(directory, "mooncake-bench", address[1].encode())
        if "RDMA device:" in line:
            print("ready", flush=True)


def initiator():
    peer = collect(directory, "mooncake-bench").decode()
    for operation in ("write", "read"):
        options = [f"-segment_id={peer}", f"-operation={operation}"]
        options += ["-duration=1", "-threads=1", "-batch_size=8"]
        subprocess.run(command + options, check=True)


os.chmod(PROGRAM, 0o755)
{"target": target, "initiator": initiator}[role]()
