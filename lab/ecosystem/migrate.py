"""Starts a virtual machine and moves it to where another QEMU waits for it, over RDMA."""

import json
import subprocess
import sys
import time

MACHINE = "qemu-system-x86_64 -machine pc,accel=tcg -m 8 -nodefaults -display none -qmp stdio"
MIGRATION_TIMEOUT = 40


def say(machine, command, **arguments):
    """Tells QEMU something, and returns its answer."""
    message = {"execute": command, "arguments": arguments}
    machine.stdin.write(json.dumps(message) + "\n")
    machine.stdin.flush()
    for line in machine.stdout:
        if not line.startswith("{"):
            # It also says in plain words which device it has opened.
            continue
        answer = json.loads(line)
        if "error" in answer:
            sys.exit(f"{command}: {answer['error']['desc']}")
        if "return" in answer:
            return answer["return"]
    sys.exit(f"QEMU ended without an answer to {command}")


def migrate(machine, where):
    """Returns when the machine is at the other side."""
    say(machine, "qmp_capabilities")
    say(machine, "migrate", uri=where)
    end = time.monotonic() + MIGRATION_TIMEOUT
    while time.monotonic() < end:
        state = say(machine, "query-migrate")
        if state.get("status") == "completed":
            return state["ram"]["transferred"]
        if state.get("status") == "failed":
            sys.exit(f"the migration failed: {state}")
        time.sleep(0.1)
    sys.exit("the migration took too long")


def main():
    with subprocess.Popen(
        MACHINE.split(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as machine:
        try:
            moved = migrate(machine, sys.argv[1])
            print(f"migrated {moved} bytes")
        finally:
            machine.kill()


main()
