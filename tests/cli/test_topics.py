"""The commands `headrace topics` and `headrace view`."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.cli import main
from headrace.link.listener import Listener
from headrace.topics import Message, Publication, TopicFolder
from headrace.topics.figures import TopicFigures
from tests.harness import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TOPICS", str(tmp_path / "topics"))
    monkeypatch.setattr("headrace.topics.folder.PATIENCE", PATIENCE)  # a publisher answers when it can
    monkeypatch.setattr("headrace.topics.discovery.PATIENCE", PATIENCE)


@contextmanager
def publishing(topic: str, data: Any) -> Iterator[Publication]:
    """Publish a message, and another one whenever a subscriber has taken the last."""
    publication = Publication(topic, program="Plant", on_room=lambda: go_on())
    stop = threading.Event()

    def go_on() -> None:
        if publication.subscribers and publication.is_idle and not stop.is_set():
            publication.publish(data, metadata={"camera": "left"})

    publication.publish(data, metadata={"camera": "left"})
    try:
        yield publication
    finally:
        stop.set()
        publication.close()


def test_topics_are_listed_with_their_publishers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics"]) == 0
    assert capsys.readouterr().out == "no program publishes a topic\n"
    Listener.close(TopicFolder().announce("gone", 1, lambda purpose: None))
    with publishing("plant/boxes", 1), publishing("plant/video", 2):
        assert main(["topics", "list"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["topic", "program", "process", "host", "policy", "messages", "subscribers"]
    assert [line[:4] for line in lines[2:]] == [
        ["plant/boxes", "Plant", str(os.getpid()), "POP"],
        ["plant/video", "Plant", str(os.getpid()), "POP"],
    ]


def test_a_topic_is_shown_with_its_rate_its_size_its_delay_and_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with publishing("plant/video", {"image": np.zeros((48, 64, 3), np.uint8), "count": 3}):
        assert main(["topics", "show", "plant/video", "--count", "5"]) == 0
    out = capsys.readouterr().out
    assert re.match(
        rf"plant/video: published by Plant, process {os.getpid()}\nrate     \S+ messages a second\n", out
    )
    assert "size     9 KB" in out
    assert re.search(r"delay    \S+ ms median, \S+ ms at most\n", out)
    assert "  image: uint8 (48, 64, 3), a picture of 64 x 48, RGB\n  count: 3\n" in out
    assert "  metadata: {'camera': 'left'}\n" in out


def test_figures_count_what_the_publisher_sent() -> None:
    figures = TopicFigures()
    for number, published, delay in ((3, 0, 7), (5, 500, 9), (6, 1000, 1), (9, 2000, 2)):
        message = Message(b"abc"[: number // 3], None, None, number, published * 1_000_000)
        figures.add(message, (published + delay) * 1_000_000)
    assert figures.lines() == [
        "rate     3 messages a second",  # those that did not arrive are among them
        "size     1 B to 3 B",
        "delay    2 ms median, 9 ms at most",
        "message 9:",
        "  b'abc'",
    ]


def test_a_viewer_attaches_to_a_running_program_by_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cv2")
    monkeypatch.setenv("HEADRACE_VIEW", "")  # which the command sets
    picture = tmp_path / "out.png"
    with publishing("plant/video", np.full((48, 64, 3), 200, np.uint8)) as publication:
        ended: list[int] = []
        viewer = threading.Thread(
            target=lambda: ended.append(main(["view", "plant/video", "--to", str(picture), "--once"]))
        )
        viewer.start()
        wait_until(lambda: publication.sent > 3, "pictures were sent")
    viewer.join(PATIENCE)
    assert ended == [0]
    assert picture.read_bytes().startswith(b"\x89PNG")
