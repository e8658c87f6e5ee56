"""Which operator, fragment and run a log record belongs to, and records as JSON."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace import Application, CountCondition, Operator, op
from headrace.core import RunFields, show_log
from tests.harness import MakeScheduler


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(RunFields())
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, logger = Kept(), logging.getLogger("program")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield handler
    logger.removeHandler(handler)
    logger.setLevel("NOTSET")


def say(text: str) -> None:
    """Log, as code does that knows nothing of operators."""
    logging.getLogger("program").info(text)


class Camera(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        say("start")

    def compute(self, the_input: Any, the_output: Any, the_context: Any) -> None:
        say("compute")
        the_output.emit(1, "out")


@op
def crop(value: int) -> int:
    say("function")
    return value


@op
def stages(value: int) -> Iterator[int]:
    say("generator")
    yield value


class Program(Application):
    schedule: MakeScheduler | None = None

    def compose(self) -> None:
        say("compose")
        if self.schedule is not None:
            self.scheduler(self.schedule(self))
        camera = Camera(self, CountCondition(self, 2), name="front camera")
        first, second = crop(self, name="left crop"), crop(self, name="right crop")
        self.add_flow(camera, first, second, stages(self))


def test_records_of_a_function_that_awaits_and_of_its_tasks_carry_the_operator(kept: Kept) -> None:
    async def part() -> None:
        say("task")

    @op(concurrency=2)
    async def request(value: int) -> int:
        say("begin")
        await asyncio.gather(part(), part())
        say("end")
        return value

    @op
    async def numbers() -> AsyncIterator[int]:
        for number in range(2):
            say("source")
            yield number

    class Asking(Application):
        def compose(self) -> None:
            source = numbers(self)
            for name in ("left", "right"):
                self.add_flow(source, request(self, name=name))

    Asking().run()
    found = {(record.getMessage(), record.operator, record.fragment) for record in kept.records}
    asked = {(text, name, "Asking") for text in ("begin", "task", "end") for name in ("left", "right")}
    assert found == {("source", "numbers", "Asking"), *asked}


def test_records_of_a_program_carry_the_operator_the_fragment_and_the_run(
    kept: Kept, scheduler: MakeScheduler
) -> None:
    app = Program(name="live")
    app.schedule = scheduler
    app.run()
    found = {(record.getMessage(), record.operator, record.fragment, record.run) for record in kept.records}
    run = app.run_id
    assert len(run) == 12
    assert found == {
        ("compose", "", "live", run),
        ("start", "front camera", "live", run),
        ("compute", "front camera", "live", run),
        ("function", "left crop", "live", run),
        ("function", "right crop", "live", run),
        ("generator", "stages", "live", run),
    }


def test_every_run_has_another_name_and_there_is_none_outside(kept: Kept) -> None:
    say("before")
    app = Program()
    app.run()
    first = app.run_id
    app.run()
    say("after")
    assert app.run_id != first
    assert [(record.fragment, record.run) for record in (kept.records[0], kept.records[-1])] == [("", "")] * 2


def stderr(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what the handler of `show_log` writes, as if pytest had no handlers."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("headrace"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("headrace"), "level", logging.NOTSET)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    return sys.stderr  # type: ignore[return-value]


def test_the_log_as_json_is_one_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = stderr(monkeypatch)

    @op
    def fails() -> None:
        logging.getLogger("program").warning(
            "odd %s", "value", extra={"number": float("nan"), "keys": {1: 2}, "_of_a_library": 3}
        )
        raise ZeroDivisionError("three\nlines\nhere")

    class Failing(Application):
        def compose(self) -> None:
            self.add_operator(fails(self))

    show_log("info", "json")
    app = Failing()
    with pytest.raises(ZeroDivisionError):
        app.run()
    first, last = map(json.loads, written.getvalue().splitlines())
    assert first == {
        "time": first["time"],
        "level": "warning",
        "logger": "program",
        "message": "odd value",
        "thread": "MainThread",
        "operator": "fails",
        "fragment": "Failing",
        "run": app.run_id,
        "number": "nan",
        "keys": "{1: 2}",
    }
    assert first["time"].endswith("+00:00")
    assert (last["logger"], last["level"], last["exception"]) == (
        "headrace.run",
        "error",
        "ZeroDivisionError",
    )
    assert "in fails" in last["traceback"]
    assert (last["fragment"], last["run"]) == ("Failing", app.run_id)


def test_a_record_that_cannot_be_formatted_is_written_with_what_could_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unreadable:
        def __repr__(self) -> str:
            raise ValueError("no text")

    written = stderr(monkeypatch)
    show_log("info", "json")
    logger = logging.getLogger("program")
    logger.warning("%d frames", "many")
    logger.warning(Unreadable())
    first, second = (json.loads(line)["message"] for line in written.getvalue().splitlines())
    assert first == "%d frames [('many',): %d format: a real number is required, not str]"
    assert "Unreadable instance" in second
    assert second.endswith("[(): no text]")
