"""RDMA for any Linux machine: runs unmodified programs on a RoCEv2 device in user space.

>>> import rocinante
>>> rocinante.run(["ibv_devinfo"], check=True)

The pytest fixture `rdma` gives each test two devices; see `rocinante.pytest_plugin`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

__all__ = ["command", "environment", "roci_path", "run"]

Word = Union[str, "os.PathLike[str]"]
Devices = Union[str, Mapping[str, str], None]


def roci_path() -> Path:
    """The path of the command `roci`: the one of this package, else the one in `PATH`."""
    try:
        installed: Iterable[metadata.PackagePath] = metadata.files("rocinante") or ()
    except metadata.PackageNotFoundError:
        installed = ()
    for file in installed:
        path = Path(str(file.locate()))
        if file.name == "roci" and path.is_file():
            return path.resolve()
    found = shutil.which("roci")
    if found is None:
        raise FileNotFoundError("roci is neither in this package nor in PATH; install the wheel of rocinante again")
    return Path(found).resolve()


def command(
    program: Sequence[Word],
    *,
    devices: Devices = None,
    faults: Optional[str] = None,
    pcap: Optional[Word] = None,
    options: Sequence[str] = (),
) -> list[str]:
    """The command line that runs a program on Rocinante's devices, for `subprocess.Popen` and others.

    devices: as `ROCI_DEVICES`, or a mapping of names to interfaces or addresses, such as `{"mlx5_0": "127.0.0.2"}`
    faults: as `ROCI_FAULT`, such as `"drop:opcode=RC_SEND_ONLY,nth=3"`
    pcap: the file that gets every packet; `%p` in its name becomes the process id
    options: more options of `roci run`, such as `["--explain", "--check=fail"]`
    """
    settings = _settings(devices, faults, pcap)
    words = [os.fspath(word) for word in program]
    return [str(roci_path()), "run", *settings, *options, "--", *words]


def run(
    program: Sequence[Word],
    *,
    devices: Devices = None,
    faults: Optional[str] = None,
    pcap: Optional[Word] = None,
    options: Sequence[str] = (),
    **arguments: Any,
) -> subprocess.CompletedProcess[Any]:
    """Runs a program on Rocinante's devices, and waits for it.

    The settings are those of `command`; all other arguments are those of `subprocess.run`.
    """
    line = command(program, devices=devices, faults=faults, pcap=pcap, options=options)
    return subprocess.run(line, **arguments)


def environment(
    *, devices: Devices = None, faults: Optional[str] = None, pcap: Optional[Word] = None
) -> dict[str, str]:
    """The environment of this process, and what `roci env` adds: programs with it run as under `run`."""
    line = [str(roci_path()), "env", "--lines", *_settings(devices, faults, pcap)]
    lines = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {**os.environ, **dict(line.split("=", 1) for line in lines)}


def _settings(devices: Devices, faults: Optional[str], pcap: Optional[Word]) -> list[str]:
    if isinstance(devices, Mapping):
        devices = ",".join(f"{name}={place}" for name, place in devices.items())
    given = {"--devices": devices, "--fault": faults, "--pcap": pcap}
    return [f"{option}={os.fspath(value)}" for option, value in given.items() if value is not None]
