"""Topics between hosts, found by Zenoh, here on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from headrace.core.errors import TopicError
from headrace.topics import TopicFolder
from headrace.topics.discovery import list_topics
from tests.harness import PATIENCE, wait_until
from tests.harness.processes import run_python
from tests.topics.ends import await_subscribers, link_of, published, reading

pytest.importorskip("zenoh")
from headrace.topics.zenoh_discovery import ZenohDiscovery, zenoh_discovery

TOKEN = b"a token that has enough bytes"


@contextmanager
def reserved_port() -> Iterator[int]:
    """A port that the system gives nobody else meanwhile, and that a server of this test can listen on."""
    with socket.socket() as reserving:
        reserving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserving.bind(("127.0.0.1", 0))
        yield reserving.getsockname()[1]


@contextmanager
def hosts(*tokens: bytes, **options: Any) -> Iterator[list[ZenohDiscovery]]:
    """Make a host for each token, all of which know the first."""
    with reserved_port() as port:
        made = [
            ZenohDiscovery(
                "127.0.0.1", token, **({"peers": [f"127.0.0.1:{port}"]} if at else {"port": port}), **options
            )
            for at, token in enumerate(tokens)
        ]
        try:
            yield made
        finally:
            for each in made:
                each.close()


@pytest.mark.parametrize("encrypted", [False, True])
def test_messages_come_from_another_host_and_from_its_next_publisher(encrypted: bool) -> None:
    if encrypted:
        pytest.importorskip("cryptography")
    with (
        hosts(TOKEN, TOKEN, encrypted=encrypted) as (here, there),
        reading("plant/video", ways=[here]) as reader,
    ):
        frame = np.arange(1 << 18, dtype=np.uint16)
        with published("plant/video", ways=[there]) as publication:
            await_subscribers(publication)
            publication.publish(frame, metadata={"camera": "left"})
            message = reader.next()
            assert np.array_equal(np.asarray(message.data), frame)
            assert message.metadata == {"camera": "left"}
            (listed,) = list_topics([here])
            assert (listed.topic, listed.host) == ("plant/video", socket.gethostname())
        reader.wait_for_end()
        wait_until(lambda: not here.publishers(), "it is gone")
        with published("plant/video", ways=[there]) as publication:
            publication.publish("again")
            assert reader.next().data == "again"


def test_a_publisher_that_is_found_in_both_ways_is_reached_without_the_network() -> None:
    with hosts(TOKEN, TOKEN) as (here, there), published("a", ways=[TopicFolder(), there]) as publication:
        wait_until(lambda: here.publishers("a"), "it is found")
        with reading("a", ways=[here, TopicFolder()]) as reader:
            await_subscribers(publication)
            publication.publish(1)
            assert reader.next().data == 1
            assert link_of(reader).publisher.is_local
            assert len(list_topics([here, TopicFolder()])) == 1


def test_a_host_with_another_token_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    other = b"a token that nobody else has"
    with hosts(TOKEN, other) as (here, there), published("a", ways=[there]) as publication:
        with reading("a", ways=[here]):
            wait_until(lambda: "cannot be received" in caplog.text, "it was refused")
        assert publication.subscribers == []


def test_a_program_that_has_looked_for_other_hosts_ends() -> None:
    done = run_python(
        "-c",
        "from headrace.topics.discovery import discoveries; print([each.publishers() for each in discoveries()])",
        HEADRACE_TOPICS_ADDRESS="127.0.0.1",
        HEADRACE_TOPICS_TOKEN=TOKEN.decode(),
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, "[[], []]\n"), done.stderr


def test_a_thread_that_begins_after_the_end_ends() -> None:
    with hosts(TOKEN) as (here,):
        pass
    here._follow()


def test_an_announcement_that_is_none_is_ignored() -> None:
    keys = [
        "headrace/topics/a",
        "headrace/topics/a/1/2/host/here",
        "headrace/topics/a/1/x/host/127.0.0.1:1",
        "headrace/topics/a/1/2/ho\x1b[2Jst/127.0.0.1:1",
        "headrace/topics/1/2/host/127.0.0.1:1",
    ]
    with hosts(TOKEN, TOKEN) as (here, there):
        declared = [there._session.liveliness().declare_token(key) for key in keys]
        with published("a", ways=[there]):
            wait_until(lambda: here.publishers("a"), "the other one is found")
            assert len(here.publishers()) == 1
        assert len(declared) == len(keys)


@pytest.mark.parametrize(
    ("token", "expected"), [("", "HEADRACE_TOPICS_TOKEN is not"), ("short", "at least 16 bytes")]
)
def test_hosts_need_a_token(monkeypatch: pytest.MonkeyPatch, token: str, expected: str) -> None:
    monkeypatch.setenv("HEADRACE_TOPICS_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("HEADRACE_TOPICS_TOKEN", token)
    with pytest.raises(TopicError, match=expected):
        zenoh_discovery()
