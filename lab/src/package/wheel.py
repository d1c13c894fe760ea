"""Packs a directory as a wheel: lists its files in RECORD, and makes the same bytes of the same files every time.

Usage: wheel.py DIRECTORY FILE
"""

import base64
import hashlib
import pathlib
import stat
import sys
import zipfile

TIME = (2026, 1, 1, 0, 0, 0)


def pack(directory, wheel):
    [information] = directory.glob("*.dist-info")
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    # Readers find the information sooner at the end.
    files.sort(key=lambda path: information in path.parents)
    record = ""
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            name = path.relative_to(directory).as_posix()
            content = path.read_bytes()
            add(archive, name, content, path.stat().st_mode & stat.S_IXUSR)
            record += f"{name},sha256={digest(content)},{len(content)}\n"
        name = f"{information.name}/RECORD"
        add(archive, name, f"{record}{name},,\n", False)


def add(archive, name, content, executable):
    entry = zipfile.ZipInfo(name, TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    archive.writestr(entry, content)


def digest(content):
    code = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return code.rstrip(b"=").decode()


pack(*map(pathlib.Path, sys.argv[1:]))
