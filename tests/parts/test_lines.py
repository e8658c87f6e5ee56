"""What the processes of parts print, and their children."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from io import StringIO

import pytest

from headrace.parts.lines import BEGIN, Lines, print_lines


class Busy:
    """A pipe, every line of which makes a child of the process write another one."""

    def __init__(self) -> None:
        self.read, self.write_end = os.pipe()
        self.written: list[bytes] = []
        self.lines = Lines(os.fdopen(self.read, "rb", 0), self._note)

    def _note(self, data: bytes) -> None:
        self.written.append(data)
        assert len(self.written) < 1000, "this would go on for ever"
        os.write(self.write_end, b"a later line\n")


@pytest.fixture
def busy() -> Iterator[Busy]:
    made = Busy()
    yield made
    os.close(made.write_end)


def test_what_a_child_writes_after_the_process_has_ended_is_not_waited_for(busy: Busy) -> None:
    os.write(busy.write_end, BEGIN + b"the last line\nand its end")
    busy.lines.close()
    assert busy.written == [b"the last line\n", b"and its end"]


def test_a_long_output_is_read_to_the_moment_of_the_call(busy: Busy) -> None:
    content = b"x" * 999 + b"\n"
    os.write(busy.write_end, BEGIN)
    for _ in range(60):
        os.write(busy.write_end, content)
    busy.lines.close()
    assert b"".join(busy.written) == content * 60


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_what_was_written_before_the_run_is_not_passed_on(size: int) -> None:
    reading, writing = os.pipe()
    written: list[bytes] = []
    lines = Lines(os.fdopen(reading, "rb", 0), written.append)
    content = b"early\n" * 900 + BEGIN + b"a line\nand another\n"
    for at in range(0, len(content), size):
        os.write(writing, content[at : at + size])
        lines.read()
    os.close(writing)
    lines.close()
    assert b"".join(written) == b"a line\nand another\n"


def test_the_last_words_of_a_process_that_never_begins_are_kept() -> None:
    reading, writing = os.pipe()
    lines = Lines(os.fdopen(reading, "rb", 0), lambda data: pytest.fail("it is passed on"))
    os.write(writing, b"x" * 5000 + b"\nImportError: no such module\n")
    lines.close()
    os.close(writing)
    assert lines.last_words.endswith("x\nImportError: no such module")
    assert len(lines.last_words) < 2001


def test_lines_are_printed_whatever_the_program_has_put_in_the_place_of_its_output(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_lines(1, b"\xff as it is\n")
    print_lines(2, b"an error\n")
    assert capfdbinary.readouterr() == (b"\xff as it is\n", b"an error\n")
    text = StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    print_lines(1, b"a line\n")
    assert text.getvalue() == "a line\n"
    monkeypatch.setattr(sys, "stdout", None)  # it was closed when the driver was started
    print_lines(1, b"nobody reads")
