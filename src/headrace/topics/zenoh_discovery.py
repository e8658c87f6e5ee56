"""ZenohDiscovery: publishers of other hosts, found by Zenoh.

Zenoh knows names and who is alive, and nothing else: a publisher declares a liveliness token whose key says where
it listens, and frames travel over a TCP link of ours. With Zenoh's own transport a frame of 4 MiB took 9 ms, and
over TCP 1.5 ms (one host, Zenoh 1.10, 2026-11). Zenoh 1.10 has wheels for x86-64 and aarch64, no dependencies, and
the licences EPL-2.0 and Apache-2.0.

Whoever can speak to Zenoh in the network sees the names of topics, and can announce false publishers. The handshake
of the link proves at both ends that the other one knows the token, so neither gives a stranger a message.

Nothing listens on another address than the one that was given. Without peers that are named, Zenoh looks for others
by multicast on the interface of that address; on loopback it does not.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import socket
import threading
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.errors import PeerLost, TopicError
from headrace.lazy import import_or_explain
from headrace.link.connect import connect
from headrace.link.handshake import check_token
from headrace.link.listener import Listener, listen
from headrace.link.loop import WakeUp
from headrace.topics.discovery import PATIENCE, Publisher, PublisherGone, check_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.link.carrier import Carrier
    from headrace.link.handshake import Purpose
    from headrace.link.listener import FindTaker
    from headrace.link.tls import ServerIdentity

_PREFIX = "headrace/topics"
_MOST = 4096  # publishers; whoever is in the network can announce some
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}")
_PLACE = re.compile(r"[A-Za-z0-9._:%-]{1,255}:[0-9]{1,5}")
_FIRST_ANSWERS = 1.0  # seconds for the answers of those who are there already


@cache
def zenoh_discovery() -> ZenohDiscovery:
    """Return the discovery of this process, as the environment says."""
    address, _, port = os.environ["HEADRACE_TOPICS_ADDRESS"].partition(":")
    token = os.environ.get("HEADRACE_TOPICS_TOKEN", "")
    if not token:
        raise TopicError(
            "HEADRACE_TOPICS_ADDRESS is set, and HEADRACE_TOPICS_TOKEN is not: programs on several hosts need a "
            "secret that they share, such as the output of: openssl rand -hex 32"
        )
    peers = [peer.strip() for peer in os.environ.get("HEADRACE_TOPICS_PEERS", "").split(",") if peer.strip()]
    discovery = ZenohDiscovery(
        address,
        token.encode(),
        port=int(port) if port.isdigit() else 0,
        peers=peers,
        encrypted=os.environ.get("HEADRACE_TOPICS_TLS", "0") not in ("", "0"),
    )
    atexit.register(discovery.close)
    return discovery


class ZenohDiscovery:
    """Finds publishers of other hosts.

    Parameters
    ----------
    address
        The address of this host in the network that it shares with the others.
    token
        The secret that all programs share.
    port
        The port at which Zenoh listens; any free one unless given.
    peers
        Where Zenoh finds others, as ``"host:port"``; by multicast unless given.
    encrypted
        Whether the links use TLS; all programs must say the same.
    """

    def __init__(
        self,
        address: str,
        token: bytes,
        *,
        port: int = 0,
        peers: Sequence[str] = (),
        encrypted: bool = False,
    ) -> None:
        try:
            check_token(token)
        except ValueError as error:
            raise TopicError(f"HEADRACE_TOPICS_TOKEN: {error}") from None
        self._zenoh = import_or_explain("zenoh", "zenoh", "to find topics of other hosts")
        self._address, self._token, self._encrypted = address, token, encrypted
        self._lock = threading.Lock()
        self._known: dict[str, Publisher] = {}
        self._watches: list[_Watch] = []
        self._session = self._open(address, port, peers)
        every = f"{_PREFIX}/**"
        self._subscriber = self._session.liveliness().declare_subscriber(every, history=True)
        # A function that is passed to Zenoh would run on a thread of its own, for whose end the interpreter waits
        # before it closes anything. This one is closed at exit, and joined, since a thread that returns from Zenoh
        # while the interpreter ends aborts the process.
        self._follower = threading.Thread(target=self._follow, name="headrace topics", daemon=True)
        self._follower.start()
        for reply in self._session.liveliness().get(every, timeout=_FIRST_ANSWERS):
            if reply.ok is not None:
                self._add(str(reply.ok.key_expr))

    def __repr__(self) -> str:
        return f"ZenohDiscovery({self._address!r})"

    def announce(self, topic: str, started: int, find_taker: FindTaker) -> _Announcement:
        """Listen on a free port of the address, and declare that it is there."""
        return _Announcement(self, topic, started, find_taker)

    def publishers(self, topic: str = "") -> list[Publisher]:
        """Return the publishers that are alive."""
        with self._lock:
            return [each for each in self._known.values() if topic in ("", each.topic)]

    def is_alive(self, publisher: Publisher) -> bool:
        """Return whether Zenoh says so."""
        return publisher in self.publishers(publisher.topic)

    def watch(self, topic: str) -> _Watch:
        """Watch for publishers that come."""
        watch = _Watch(self)
        with self._lock:
            self._watches.append(watch)
        return watch

    def connect(self, publisher: Publisher, purpose: Purpose) -> Carrier:
        """Connect to a publisher over TCP."""
        host, _, port = publisher.place.rpartition(":")
        try:
            return connect(
                (host, int(port)), purpose, self._token, encrypted=self._encrypted, seconds=PATIENCE
            )
        except PeerLost as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                raise PublisherGone(f"process {publisher.pid} on {publisher.host} has ended") from error
            raise

    def close(self) -> None:
        """Leave Zenoh."""
        with suppress(self._zenoh.ZError):  # it was closed before
            self._subscriber.undeclare()
        waits.join(self._follower)
        self._session.close()

    def _open(self, address: str, port: int, peers: Sequence[str]) -> Any:
        config = self._zenoh.Config()
        is_loopback = address.startswith("127.") or address in ("::1", "localhost")
        settings: dict[str, Any] = {
            "mode": "peer",
            "listen/endpoints": [f"tcp/{address}:{port}"],
            "connect/endpoints": [f"tcp/{peer}" for peer in peers],
            "scouting/multicast/enabled": not peers and not is_loopback,
        }
        if not is_loopback:
            settings["scouting/multicast/interface"] = address
        for key, value in settings.items():
            config.insert_json5(key, json.dumps(value))
        try:
            return self._zenoh.open(config)
        except self._zenoh.ZError as error:
            raise TopicError(
                f"Zenoh cannot be used at {address}:{port} with peers {list(peers)}: {error}"
            ) from error

    def _follow(self) -> None:
        with suppress(self._zenoh.ZError):  # it was undeclared before this thread began
            for sample in self._subscriber:  # until it is undeclared
                self._change(sample)

    def _change(self, sample: Any) -> None:
        """Note that a publisher has come or gone."""
        key = str(sample.key_expr)
        if sample.kind == self._zenoh.SampleKind.PUT:
            self._add(key)
        else:
            with self._lock:
                self._known.pop(key, None)

    def _add(self, key: str) -> None:
        publisher = _publisher(self, key)
        if publisher is None:
            return
        with self._lock:
            if len(self._known) >= _MOST:
                return
            self._known[key] = publisher
            watches = list(self._watches)
        for watch in watches:
            watch.set()


class _Announcement(Listener):
    """A TCP socket that listens, and the token of Zenoh that tells of it."""

    watch = None

    def __init__(self, discovery: ZenohDiscovery, topic: str, started: int, find_taker: FindTaker) -> None:
        identity: ServerIdentity | None = None
        if discovery._encrypted:
            from headrace.link.tls import ServerIdentity

            identity = ServerIdentity.make()
        listening = listen(discovery._address)
        super().__init__(listening, find_taker=find_taker, token=discovery._token, identity=identity)
        host, port = listening.getsockname()[:2]
        place = f"{started:x}/{os.getpid()}/{socket.gethostname() or 'host'}/{host}:{port}"
        try:
            self._declared = discovery._session.liveliness().declare_token(f"{_PREFIX}/{topic}/{place}")
        except BaseException:
            super().close()
            raise

    def is_there(self) -> bool:
        """Return True: nobody else can withdraw it."""
        return True

    def close(self) -> None:
        """Be found no more, and listen no more."""
        self._declared.undeclare()
        super().close()


class _Watch(WakeUp):
    """Is set by publishers that come."""

    def __init__(self, discovery: ZenohDiscovery) -> None:
        super().__init__()
        self._discovery = discovery

    def close(self) -> None:
        """Watch no more."""
        with self._discovery._lock:
            self._discovery._watches.remove(self)
        super().close()


def _publisher(discovery: ZenohDiscovery, key: str) -> Publisher | None:
    """Return the publisher that a key tells of; None for what is no such key."""
    try:
        *parts, started, pid, host, place = key.removeprefix(f"{_PREFIX}/").split("/")
        topic = check_topic("/".join(parts))
        if not _HOST.fullmatch(host) or not _PLACE.fullmatch(place):
            return None
        return Publisher(int(started, 16), int(pid), topic, False, place, host, discovery=discovery)
    except ValueError:  # also a TopicError
        return None
