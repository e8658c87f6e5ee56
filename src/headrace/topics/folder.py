"""TopicFolder: a private folder with a socket for each publisher of this host.

The folder belongs to the user and nobody else can enter it. It is opened once for each use, its owner and its mode
are read from what was opened, and sockets are named relative to that (``/proc/self/fd/N/NAME``). So nobody can put
another folder in its place between the check and the use, and the length of its path does not matter, although the
path of a socket has at most 107 bytes.

The name of a socket says which topic it is, when its publisher began and in which process, and no two publishers
ever have the same. A socket appears in the folder by a rename when it already listens. So one that refuses a
connection belongs to a publisher that was killed, and whoever finds that may remove it: it cannot be a new one of
the same name.

inotify announces new sockets: a program that waits for a publisher does not poll.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.errors import PeerLost, TopicError
from headrace.link.connect import connect_unix
from headrace.topics.discovery import PATIENCE, Publisher, PublisherGone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.link.carrier import Carrier
    from headrace.link.handshake import Purpose

_MOVED_TO, _DELETE_SELF, _IGNORED = 0x80, 0x400, 0x8000  # of <sys/inotify.h>
_EVENT = struct.Struct("iIII")
_MANY = 64  # subscribers that may connect at once
_SLASH = "+"  # in the name of a file; the name of a topic has none


class TopicFolder:
    """A private folder of sockets.

    Parameters
    ----------
    path
        The folder; ``HEADRACE_TOPICS`` unless given, or ``headrace/topics`` in ``XDG_RUNTIME_DIR``, or
        ``/tmp/headrace-UID/topics``.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.base, self.names = _place(path)

    def __repr__(self) -> str:
        return f"TopicFolder({str(self.base.joinpath(*self.names))!r})"

    def announce(self, topic: str, started: int) -> _Announcement:
        """Listen on a new socket in the folder."""
        with self._opened() as folder:
            _remove_unfinished(folder)
        return _Announcement(self, topic, started)

    def publishers(self, topic: str = "") -> list[Publisher]:
        """Return the publishers whose sockets are in the folder."""
        with self._opened() as folder:
            names = os.listdir(folder)
        known = [_publisher(self, name) for name in names]
        return [each for each in known if each is not None and topic in ("", each.topic)]

    def watch(self, topic: str) -> _Watch:
        """Watch for new sockets in the folder."""
        return _Watch(self)

    def is_alive(self, publisher: Publisher) -> bool:
        """Return whether a publisher still listens; remove its socket if it does not."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, self._opened() as folder:
            connection.setblocking(False)
            try:
                connection.connect(_path(folder, publisher.place))
            except ConnectionRefusedError:
                self._remove(publisher)
                return False
            except FileNotFoundError:
                return False
            except BlockingIOError:  # many wait already
                pass
        return True

    def connect(self, publisher: Publisher, purpose: Purpose) -> Carrier:
        """Connect to a publisher; remove its socket if it has ended."""
        try:
            with self._opened() as folder:
                return connect_unix(_path(folder, publisher.place), purpose, PATIENCE)
        except PeerLost as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                self._remove(publisher)
            elif not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise PublisherGone(f"process {publisher.pid} has ended") from error

    def _remove(self, publisher: Publisher) -> None:
        with suppress(FileNotFoundError), self._opened() as folder:
            os.unlink(publisher.place, dir_fd=folder)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder, which is made if it is not there; raise TopicError if it is not private."""
        opened = os.open(self.base, os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            path = self.base
            for name in self.names:
                path /= name
                try:
                    os.mkdir(name, 0o700, dir_fd=opened)
                except FileExistsError:
                    pass
                except OSError as error:
                    raise _cannot_be_made(path, error) from None
                outer = opened
                try:
                    opened = os.open(name, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=outer)
                except NotADirectoryError:
                    raise TopicError(
                        f"the folder of topics {str(path)!r} is not a folder; remove it"
                    ) from None
                finally:
                    if opened != outer:
                        os.close(outer)
                _check_private(opened, path)
            yield opened
        finally:
            os.close(opened)


class _Announcement:
    """A socket in the folder that listens."""

    token = None
    identity = None

    def __init__(self, folder: TopicFolder, topic: str, started: int) -> None:
        self.name = f"{topic.replace('/', _SLASH)}@{started:x}-{os.getpid()}"
        self._folder = folder
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.setblocking(False)
        try:
            with folder._opened() as opened:
                unfinished = f".{self.name}"
                self.listening.bind(_path(opened, unfinished))
                self.listening.listen(_MANY)
                os.rename(unfinished, self.name, src_dir_fd=opened, dst_dir_fd=opened)
        except BaseException:
            self.listening.close()
            raise

    def close(self) -> None:
        """Remove the socket from the folder."""
        with suppress(OSError, TopicError), self._folder._opened() as opened:
            os.unlink(self.name, dir_fd=opened)


class _Watch:
    """An inotify of the folder."""

    def __init__(self, folder: TopicFolder) -> None:
        self._folder = folder
        self._inotify = _checked(_libc().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            self._add()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Return what becomes readable when a socket has come into the folder."""
        return self._inotify

    def clear(self) -> None:
        """Forget what has come; watch the folder anew if somebody has removed it."""
        with suppress(BlockingIOError):
            if _is_gone(os.read(self._inotify, 1 << 16)):
                self._add()

    def close(self) -> None:
        """Watch no more."""
        os.close(self._inotify)

    def _add(self) -> None:
        with self._folder._opened() as opened:
            path = f"/proc/self/fd/{opened}".encode()
            _checked(_libc().inotify_add_watch(self._inotify, path, _MOVED_TO | _DELETE_SELF))


def _place(path: str | os.PathLike[str] | None) -> tuple[Path, tuple[str, ...]]:
    """Return a folder that is there, and the private folders in it that lead to the sockets."""
    given = path or os.environ.get("HEADRACE_TOPICS")
    if given:
        whole = Path(given).absolute()
        try:
            whole.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_be_made(whole, error) from None
        if not whole.name:
            raise TopicError(
                f"the folder of topics cannot be {given!r}; set HEADRACE_TOPICS to one of your own"
            )
        return whole.parent, (whole.name,)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime), ("headrace", "topics")
    return Path("/tmp"), (f"headrace-{os.geteuid()}", "topics")


def _cannot_be_made(path: Path, error: OSError) -> TopicError:
    return TopicError(
        f"the folder of topics {str(path)!r} cannot be made ({error.strerror}); set HEADRACE_TOPICS to one of "
        "your own"
    )


def _check_private(opened: int, path: Path) -> None:
    status = os.fstat(opened)
    if status.st_uid != os.geteuid():
        raise TopicError(
            f"the folder of topics {str(path)!r} belongs to the user {status.st_uid}, and this process is of the "
            f"user {os.geteuid()}; set HEADRACE_TOPICS to a folder of your own"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise TopicError(
            f"the folder of topics {str(path)!r} has the mode {stat.S_IMODE(status.st_mode):04o}, so that others "
            f"can enter it; make it private: chmod 700 {path}"
        )


def _publisher(folder: TopicFolder, name: str) -> Publisher | None:
    """Return the publisher that the name of a socket tells of; None for what is no such name."""
    topic, _, rest = name.partition("@")
    started, _, pid = rest.partition("-")
    if name.startswith("."):
        return None  # it does not listen yet
    try:
        return Publisher(int(started, 16), int(pid), topic.replace(_SLASH, "/"), True, name, discovery=folder)
    except ValueError:
        return None


def _remove_unfinished(folder: int) -> None:
    """Remove the sockets of processes that ended before their sockets listened."""
    for name in os.listdir(folder):
        if not name.startswith("."):
            continue
        try:
            os.kill(int(name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        except (ValueError, OSError):
            pass


def _path(folder: int, name: str) -> str:
    return f"/proc/self/fd/{folder}/{name}"


def _is_gone(events: bytes) -> bool:
    place = 0
    while place < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, place)
        if mask & _IGNORED:
            return True
        place += _EVENT.size + length
    return False


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result
