"""TopicFolder: a private folder with a socket for each publisher of this host.

The folder belongs to the user and nobody else can enter it. It is opened once for each use, its owner and its mode
are read from what was opened, and sockets are named relative to that (``/proc/self/fd/N/NAME``). So nobody can put
another folder in its place between the check and the use, and the length of its path does not matter, although the
path of a socket has at most 107 bytes.

The name of a socket says which topic it is, when its publisher began and in which process, and no two publishers
ever have the same. A socket appears in the folder by a rename when it already listens. So one that refuses a
connection belongs to a publisher that was killed, and whoever finds that may remove it: it cannot be a new one of
the same name.

inotify announces new sockets: a program that waits for a publisher does not poll. It also tells a publisher that
somebody has removed its socket or the folder, as programs do that clean ``/tmp``; the publisher then makes another.
Whatever else lies in the folder is left alone.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.errors import PeerLost, TopicError
from headrace.link.connect import connect
from headrace.link.listener import Listener
from headrace.topics.discovery import PATIENCE, Publisher, PublisherGone, check_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.link.carrier import Carrier
    from headrace.link.handshake import Purpose
    from headrace.link.listener import FindTaker

# Of <sys/inotify.h>.
_MOVED_TO, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x80, 0x200, 0x400, 0x800
_MANY = 64  # subscribers that may connect at once
_SLASH = "+"  # in the name of a file; the name of a topic has none
_ATTEMPTS = 10  # to use a folder that somebody removes meanwhile


class TopicFolder:
    """A private folder of sockets.

    Parameters
    ----------
    path
        The folder; ``HEADRACE_TOPICS`` unless given, or ``headrace-topics`` in ``XDG_RUNTIME_DIR``, or
        ``/tmp/headrace-topics-UID``.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path or _own_folder()).absolute()
        """Where it is."""
        if not self.path.name:
            raise TopicError(
                f"the folder of topics cannot be {str(self.path)!r}; set HEADRACE_TOPICS to one of your own"
            )

    def __repr__(self) -> str:
        return f"TopicFolder({str(self.path)!r})"

    def announce(self, topic: str, started: int, find_taker: FindTaker) -> _Announcement:
        """Listen on a new socket in the folder."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError), self._opened() as folder:
                _remove_unfinished(folder)
                return _Announcement(self, folder, topic, started, find_taker)
        raise _removed(self.path)

    def publishers(self, topic: str = "") -> list[Publisher]:
        """Return the publishers whose sockets are in the folder."""
        with self._opened() as folder:
            names = os.listdir(folder)
        known = [_publisher(self, name) for name in names]
        return [each for each in known if each is not None and topic in ("", each.topic)]

    def watch(self, topic: str) -> _Watch:
        """Watch for new sockets in the folder."""
        return _Watch(self, _MOVED_TO)

    def is_alive(self, publisher: Publisher) -> bool:
        """Return whether a publisher still listens; remove its socket if it does not."""
        with socket.socket(socket.AF_UNIX) as connection, self._opened() as folder:
            connection.setblocking(False)
            try:
                connection.connect(_path(folder, publisher.place))
            except ConnectionRefusedError:
                self._remove(publisher)
                return False
            except BlockingIOError:  # many wait already
                pass
            except OSError:  # it is not there, or no socket of ours
                return False
        return True

    def connect(self, publisher: Publisher, purpose: Purpose) -> Carrier:
        """Connect to a publisher; remove its socket if it has ended."""
        try:
            with self._opened() as folder:
                return connect(_path(folder, publisher.place), purpose, seconds=PATIENCE)
        except PeerLost as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                self._remove(publisher)
            elif not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise PublisherGone(f"process {publisher.pid} has ended") from error

    def _remove(self, publisher: Publisher) -> None:
        with suppress(OSError), self._opened() as folder:  # it is gone already, or no file
            os.unlink(publisher.place, dir_fd=folder)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder, which is made if it is not there; raise TopicError if it is not private."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):  # it was removed after it was made
                opened = self._open()
                break
        else:
            raise _removed(self.path)
        try:
            yield opened
        finally:
            os.close(opened)

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.path.mkdir(0o700)
        except OSError as error:
            raise TopicError(
                f"the folder of topics {str(self.path)!r} cannot be made ({error.strerror}); set HEADRACE_TOPICS "
                "to one of your own"
            ) from None
        try:
            opened = os.open(self.path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            raise TopicError(f"the folder of topics {str(self.path)!r} is not a folder; remove it") from None
        try:
            _check_private(opened, self.path)
        except BaseException:
            os.close(opened)
            raise
        return opened


class _Announcement(Listener):
    """A socket in the folder that listens."""

    def __init__(
        self, folder: TopicFolder, opened: int, topic: str, started: int, find_taker: FindTaker
    ) -> None:
        self.name = f"{topic.replace('/', _SLASH)}@{started:x}-{os.getpid()}"
        self._folder = folder
        self.watch: _Watch | None = None
        listening = socket.socket(socket.AF_UNIX)
        try:
            unfinished = f".{self.name}"
            listening.bind(_path(opened, unfinished))
            listening.listen(_MANY)
            os.rename(unfinished, self.name, src_dir_fd=opened, dst_dir_fd=opened)
            self._inode = self._inode_in(opened)
            with suppress(OSError):  # a user has so many: without one it is not announced again
                self.watch = _Watch(folder, _DELETE)
        except BaseException:
            listening.close()
            raise
        super().__init__(listening, find_taker=find_taker)

    def is_there(self) -> bool:
        """Return whether the socket is in the folder."""
        with self._folder._opened() as opened:
            try:
                return self._inode_in(opened) == self._inode
            except FileNotFoundError:
                return False

    def close(self) -> None:
        """Remove the socket from the folder, if it is there, and listen no more."""
        if self.watch is not None:
            self.watch.close()
        with suppress(OSError, TopicError), self._folder._opened() as opened:
            if self._inode_in(opened) == self._inode:
                os.unlink(self.name, dir_fd=opened)
        super().close()

    def _inode_in(self, opened: int) -> int:
        return os.stat(self.name, dir_fd=opened, follow_symlinks=False).st_ino


class _Watch:
    """An inotify of the folder, for some events in it."""

    def __init__(self, folder: TopicFolder, events: int) -> None:
        self._folder = folder
        self._events = events | _DELETE_SELF | _MOVE_SELF
        self._watched = -1
        self._inotify = _checked(_libc().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            self._add()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Return what becomes readable when something has happened."""
        return self._inotify

    def clear(self) -> None:
        """Forget what has happened; watch the folder anew if somebody has removed it."""
        with suppress(BlockingIOError):
            os.read(self._inotify, 1 << 16)
            before = self._watched
            self._add()
            if self._watched != before:
                _libc().inotify_rm_watch(
                    self._inotify, before
                )  # of a folder that has another name now, or none

    def close(self) -> None:
        """Watch no more."""
        os.close(self._inotify)

    def _add(self) -> None:
        with self._folder._opened() as opened:
            path = f"/proc/self/fd/{opened}".encode()
            self._watched = _checked(_libc().inotify_add_watch(self._inotify, path, self._events))


def _own_folder() -> Path:
    """Return the folder of this user, as the environment says."""
    given = os.environ.get("HEADRACE_TOPICS")
    if given:
        return Path(given)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime, "headrace-topics")
    return Path(f"/tmp/headrace-topics-{os.geteuid()}")


def _removed(path: Path) -> TopicError:
    return TopicError(
        f"the folder of topics {str(path)!r} is not there after it was made, each time; set HEADRACE_TOPICS to "
        "one of your own"
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
        topic = check_topic(topic.replace(_SLASH, "/"))
        return Publisher(int(started, 16), int(pid), topic, True, name, discovery=folder)
    except ValueError:  # also a TopicError
        return None


def _remove_unfinished(folder: int) -> None:
    """Remove the sockets of processes that ended before their sockets listened."""
    for name in os.listdir(folder):
        if not name.startswith("."):
            continue
        try:
            os.kill(int(name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            with suppress(OSError):  # it is gone already, or no file
                os.unlink(name, dir_fd=folder)
        except (ValueError, OverflowError, OSError):
            pass


def _path(folder: int, name: str) -> str:
    return f"/proc/self/fd/{folder}/{name}"


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify: {os.strerror(number)}")
    return result
