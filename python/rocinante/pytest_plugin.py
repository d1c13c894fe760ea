"""A pytest plugin: the fixture `rdma` gives each test two RDMA devices, on addresses of its own.

    @pytest.mark.rdma(faults="drop:opcode=RC_SEND_ONLY,nth=3")
    def test_ping(rdma):
        server = rdma.start(["rping", "-s", "-a", rdma.left.address])
        ...

The packets of all its programs are captured. If the test fails, the captures stay in `rdma-captures`, in a directory with
the test's name, and the report names them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Generator, Iterator, List, Optional, Sequence

import pytest

import rocinante

# The UDP port of RoCEv2: its owner has the address.
PORT = 4791

# How long programs may take to end when they are asked to, in seconds, before they are killed.
END_TIMEOUT = 5

# Another process that has one network has not all of them, unless it took the port of the whole machine.
ATTEMPTS = 32

_NAME = "rdma"
_OPTION = "--rdma-captures"


@dataclass(frozen=True)
class Device:
    """An RDMA device: the name that programs see, and its IP address."""

    name: str
    address: str


@dataclass
class Rdma:
    """What the fixture `rdma` gives a test."""

    left: Device
    right: Device
    # What programs get unless the call says otherwise: as `ROCI_FAULT`.
    faults: Optional[str]
    # Where the captures are while the test runs; nothing if they are switched off.
    captures: Optional[Path]
    _started: List[subprocess.Popen[Any]] = field(default_factory=list)

    @property
    def devices(self) -> Dict[str, str]:
        """Names and addresses of both devices."""
        return {device.name: device.address for device in (self.left, self.right)}

    def run(
        self, program: Sequence[rocinante.Word], *, faults: Optional[str] = None, **arguments: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Runs a program and waits for it. The arguments are those of `rocinante.run`."""
        return rocinante.run(program, **self._settings(faults), **arguments)

    def start(
        self,
        program: Sequence[rocinante.Word],
        *,
        faults: Optional[str] = None,
        options: Sequence[str] = (),
        **arguments: Any,
    ) -> subprocess.Popen[Any]:
        """Starts a program. It ends with the test. The other arguments are those of `subprocess.Popen`."""
        line = rocinante.command(program, options=options, **self._settings(faults))
        process: subprocess.Popen[Any] = subprocess.Popen(line, **arguments)
        self._started.append(process)
        return process

    def environment(self, *, faults: Optional[str] = None) -> Dict[str, str]:
        """The environment in which programs that are started otherwise use these devices."""
        return rocinante.environment(**self._settings(faults))

    def _settings(self, faults: Optional[str]) -> Dict[str, Any]:
        capture = self.captures and self.captures / "%p.pcapng"
        return {"devices": self.devices, "faults": faults or self.faults, "pcap": capture}

    def _end_programs(self) -> None:
        for process in self._started:
            process.terminate()
        for process in self._started:
            try:
                process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._started.clear()


_RDMA = pytest.StashKey[Rdma]()
_HAS_FAILED = pytest.StashKey[bool]()


@pytest.fixture
def rdma(request: pytest.FixtureRequest) -> Iterator[Rdma]:
    """Two RDMA devices for this test alone."""
    mark = _marked(request.node)
    left, right = _free_addresses()
    captures = _make_directory(request) if mark.get("capture", True) else None
    given = Rdma(Device("left", left), Device("right", right), mark.get("faults"), captures)
    request.node.stash[_RDMA] = given
    request.node.stash[_HAS_FAILED] = False
    yield given
    given._end_programs()
    if captures is not None and not request.node.stash[_HAS_FAILED]:
        shutil.rmtree(captures)
        _remove_if_empty(captures.parent)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("rocinante").addoption(
        _OPTION,
        metavar="DIR",
        default="rdma-captures",
        help="where the RDMA packets of failed tests are kept (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_NAME}(faults=None, capture=True): the faults that the programs of the fixture `rdma` meet, as ROCI_FAULT, and "
        "whether their packets are captured.",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Keeps the captures of a test that fails, and names them."""
    report = (yield).get_result()
    given = item.stash.get(_RDMA, None)
    if given is None or given.captures is None or report.when != "call" or not report.failed:
        return
    item.stash[_HAS_FAILED] = True
    # Only then the captures are complete.
    given._end_programs()
    explain = [f"roci explain {os.path.relpath(file)}" for file in sorted(given.captures.iterdir())]
    report.sections.append(("RDMA packets", "\n".join(explain) or "no program sent or received a packet"))


def _marked(node: pytest.Item) -> Dict[str, Any]:
    """What the marks of the test, its class and its module say; the nearest counts."""
    said: Dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers(_NAME))):
        unknown = set(mark.kwargs) - {"faults", "capture"}
        if mark.args or unknown:
            pytest.fail("pytest.mark.rdma takes faults=SPEC and capture=BOOL only", pytrace=False)
        said.update(mark.kwargs)
    return said


def _free_addresses() -> List[str]:
    """Two addresses that no other process uses. All of 127.0.0.0/8 is there, so a random network is mostly free."""
    for _ in range(ATTEMPTS):
        network = f"127.{random.randrange(64, 255)}.{random.randrange(256)}"
        addresses = [f"{network}.{host}" for host in (1, 2)]
        if all(map(_is_free, addresses)):
            return addresses
    raise RuntimeError(f"UDP port {PORT} is taken on all addresses that were tried; `roci doctor` says what uses it")


def _is_free(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, PORT))
        except OSError:
            return False
    return True


def _make_directory(request: pytest.FixtureRequest) -> Path:
    """An empty directory with the name of the test."""
    base = Path(request.config.invocation_params.dir, request.config.getoption(_OPTION))
    directory = base / re.sub(r"[^\w.-]+", "_", request.node.nodeid)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        pass
