"""Listed runs: the runs of this user on this host, by name, for ``headrace ps`` and ``headrace stop``.

Each run has a file in a private folder, and its process holds a lock on it. The system ends such a lock (a POSIX
record lock) with the process, however that ends, does not pass it on to children, and says which process holds it.
So a list never names a process that is gone, nor another one that has its number now. A file without a lock is left
of a process that was killed; whoever finds it removes it.

Where there can be no such folder, as on a file system that is read-only, runs take place and are not listed.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

# `struct flock` of Linux: the type of a lock, from where it counts, its start and length, and the process.
_LOCK = struct.Struct("hhqqi4x")
_ANY_LOCK = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_MOST = 1 << 16  # bytes of a file


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run of this user on this host.

    Attributes
    ----------
    process
        The number of its process.
    name
        The name of the application.
    part
        The fragment that the process runs; empty for a process that runs, or drives, the whole application.
    run
        The name of the run, which the processes of all parts share.
    began
        When it began, in seconds since 1970.
    command
        The program, as it was started.
    """

    process: int
    name: str
    part: str
    run: str
    began: float
    command: str


_own: dict[str, ListedRun] = {}
"""The runs of this process by file; a child made by fork has those of its parent in it, too."""


class listed:
    """Lists a run of this process for the duration of a ``with`` block.

    A class: `contextlib.contextmanager` sets the traceback of an exception, which some exceptions refuse.
    """

    def __init__(self, name: str, run: str) -> None:
        command = sys.argv[0] if sys.argv else ""
        part = os.environ.get("HEADRACE_PART", "")
        self._entry = ListedRun(os.getpid(), name, part, run, time.time(), command)
        self._file = f"{self._entry.process}-{time.time_ns():x}"
        self._descriptor = -1

    def __enter__(self) -> None:
        with suppress(OSError), _folder() as folder:
            self._descriptor = _write(folder, self._file, self._entry)
            _own[self._file] = self._entry

    def __exit__(self, *_: object) -> None:
        if _own.pop(self._file, None) is not None and os.getpid() == self._entry.process:  # no child by fork
            with suppress(OSError), _folder() as folder:
                os.unlink(self._file, dir_fd=folder)
            os.close(self._descriptor)


def listed_runs() -> list[ListedRun]:
    """Return the runs of this user on this host, each application before its parts, the oldest first."""
    found = [each for each in list(_own.values()) if each.process == os.getpid()]
    with suppress(OSError), _folder() as folder:
        for file in os.listdir(folder):
            # To open a file of one's own, and to close it, would end the lock.
            if not file.startswith((".", f"{os.getpid()}-")):
                found += _read(folder, file)
    began: dict[str, float] = {}
    for each in found:
        began[each.run] = min(each.began, began.get(each.run, each.began))
    return sorted(found, key=lambda each: (began[each.run], each.run, each.part))


def _write(folder: int, file: str, entry: ListedRun) -> int:
    """Make the file of a run, which has its name only when it is locked; return its descriptor."""
    unfinished = f".{file}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(unfinished, flags, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, json.dumps(asdict(entry)).encode()[:_MOST])
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unfinished, file, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise
    return descriptor


def _read(folder: int, file: str) -> list[ListedRun]:
    """Return the run of a file, if its process is there."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:  # it has ended meanwhile
        return []
    try:
        kind, *_, process = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, _ANY_LOCK))
        if kind == fcntl.F_UNLCK:
            with suppress(OSError):
                os.unlink(file, dir_fd=folder)
            return []
        entry = ListedRun(**json.loads(os.read(descriptor, _MOST)))
        return [entry] if entry.process == process else []
    except (OSError, ValueError, TypeError):  # no file of ours
        return []
    finally:
        os.close(descriptor)


@contextmanager
def _folder() -> Iterator[int]:
    """Open the folder, which is made if it is not there; raise OSError if it is not private."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = runtime if runtime and os.path.isdir(runtime) else "/tmp"
    path = os.path.join(base, "headrace" if base == runtime else f"headrace-{os.geteuid()}")
    for each in (path, path := os.path.join(path, "runs")):
        with suppress(FileExistsError):
            os.mkdir(each, 0o700)
    opened = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{path} is not private")
        yield opened
    finally:
        os.close(opened)
