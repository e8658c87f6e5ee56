"""Programs in processes of their own, which are killed and frozen."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.topics import TopicFolder
from tests.harness import PATIENCE, wait_until
from tests.harness.processes import environment_of_programs, forking
from tests.topics.ends import await_subscribers, published, reading


@contextmanager
def program(name: str) -> Iterator[subprocess.Popen[str]]:
    process = forking()(
        [sys.executable, "-m", "tests.topics.programs", name],
        env=environment_of_programs(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


def tell(process: subprocess.Popen[str], value: int) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{value}\n")
    process.stdin.flush()


def line_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_killed_publisher_is_replaced_by_the_next_and_leaves_nothing() -> None:
    with reading("count") as reader:
        with published("count") as left, program("publish") as killed:
            await_subscribers(left)
            tell(killed, 1)
            while reader.next().data != 1:
                pass
            left.publish(2)
            killed.send_signal(signal.SIGKILL)
            assert reader.next().data == 2
            assert reader.subscription.description["pid"] == os.getpid()
            left.publish(3)
            assert reader.next().data == 3
            wait_until(
                lambda: [each.pid for each in TopicFolder().publishers("count")] == [os.getpid()],
                "it is removed",
            )
        reader.wait_for_end()
    assert TopicFolder().publishers() == []


def test_a_subscriber_that_is_frozen_or_killed_does_not_harm_the_publisher(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with published("count") as publication, reading("count") as other, program("show") as subscriber:
        await_subscribers(publication, 2)
        publication.publish(1)
        assert line_of(subscriber) == other.next().data == 1
        subscriber.send_signal(signal.SIGSTOP)
        for value in range(2, 52):
            publication.publish(value)
            assert other.next().data == value
        assert publication.lost >= 40  # a few are under way to it
        subscriber.send_signal(signal.SIGCONT)
        while line_of(subscriber) != 51:
            pass
        with caplog.at_level(logging.WARNING):
            subscriber.send_signal(signal.SIGKILL)
            await_subscribers(publication)
        publication.publish(52)
        assert other.next().data == 52
        wait_until(lambda: publication.is_idle, "everything was sent")
    assert [record.name for record in caplog.records] == ["headrace.topics"]
