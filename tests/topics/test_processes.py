"""Programs in processes of their own, which are killed and frozen."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.topics import TopicFolder
from tests.harness import PATIENCE, wait_until
from tests.harness.processes import environment_of_programs
from tests.topics.ends import await_subscribers, published, reading


@contextmanager
def program(name: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.topics.programs", name],
        env=environment_of_programs(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def line_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_killed_publisher_is_replaced_by_the_next_and_leaves_nothing() -> None:
    with reading("count") as reader:
        with program("count") as first:
            assert reader.next().data >= 1
            assert reader.subscription.description["pid"] == first.pid
            first.send_signal(signal.SIGKILL)
        with program("count") as second:
            while reader.subscription.description["pid"] != second.pid:
                reader.next()
            assert [each.pid for each in TopicFolder().publishers("count")] == [second.pid]
            second.send_signal(signal.SIGINT)
            second.wait(PATIENCE)
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
