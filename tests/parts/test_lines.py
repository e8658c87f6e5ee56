"""What the processes of parts print, and their children."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.parts.lines import Lines


class Busy:
    """A stream whose every line makes a child of the process write another one."""

    def __init__(self) -> None:
        self.read, self.write_end = os.pipe()
        self.written: list[bytes] = []
        self.buffer = SimpleNamespace(write=self._note)

    def _note(self, data: bytes) -> None:
        self.written.append(data)
        assert len(self.written) < 1000, "this would go on for ever"
        os.write(self.write_end, b"a later line\n")

    def write(self, text: str) -> None:
        pass

    def flush(self) -> None:
        pass


@pytest.fixture
def busy() -> Iterator[Busy]:
    made = Busy()
    yield made
    os.close(made.write_end)


def lines_of(stream: Any) -> Lines:
    return Lines(stream.read, lambda: stream, lambda error: None)


def test_what_a_child_writes_after_the_process_has_ended_is_not_waited_for(busy: Busy) -> None:
    lines = lines_of(busy)
    lines.open()
    os.write(busy.write_end, b"the last line\nand its end")
    lines.read_all()
    assert busy.written == [b"the last line\n"]
    lines.close()
    assert busy.written == [b"the last line\n", b"and its end"]


def test_a_long_output_is_read_to_the_moment_of_the_call(busy: Busy) -> None:
    lines = lines_of(busy)
    lines.open()
    content = b"x" * 999 + b"\n"
    for _ in range(60):
        os.write(busy.write_end, content)
    lines.read_all()
    assert b"".join(busy.written) == content * 60
    lines.close()


def test_a_child_that_writes_before_the_run_does_not_delay_its_beginning(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_of(busy)
    os.write(busy.write_end, b"early\n")
    read = os.read

    def read_and_write(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        if data:
            busy._note(data)
        return data

    monkeypatch.setattr(os, "read", read_and_write)
    lines.open()
    monkeypatch.undo()
    lines.read_all()
    assert busy.written == [b"early\n", b"a later line\n"]
    lines.close()


def test_a_stream_that_only_writes_is_written_to(busy: Busy) -> None:
    written: list[str] = []
    lines = Lines(busy.read, lambda: SimpleNamespace(write=written.append), lambda error: None)
    lines.open()
    os.write(busy.write_end, b"a line\n")
    lines.read_all()
    lines.close()
    assert written == ["a line\n"]
