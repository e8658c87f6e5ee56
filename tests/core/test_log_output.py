"""The log on stderr, if the environment asks for it; and a logger for each operator."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.conditions import CountCondition
from tests.harness import App, Step, run, sink, source
from tests.harness.logs import logging_of_a_program


@pytest.fixture(autouse=True)
def unconfigured() -> Iterator[None]:
    with logging_of_a_program():
        yield


def speaking(app: App) -> None:
    def speak(self: Step, op_input: Any, op_output: Any) -> None:
        self.logger.info("frame %d", self.ticks)

    app.add_operator(Step(app, CountCondition(app, 2), body=speak, name="camera"))


def test_each_operator_has_a_logger_of_its_own() -> None:
    app = App(speaking)
    camera = app.compose_graph().find("camera")
    assert "logger" not in vars(camera)  # nothing is created until it is used
    assert camera.logger is logging.getLogger("headrace.operator.camera")
    assert camera.logger is camera.logger


def test_without_the_variable_logging_is_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_LOG_LEVEL", raising=False)
    before = list(logging.getLogger("headrace").handlers)
    run(speaking)
    assert logging.getLogger("headrace").handlers == before
    assert capsys.readouterr().err == ""


def test_with_the_variable_the_log_is_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "info")
    run(speaking)
    run(speaking)  # the second run adds no second handler
    first, *_ = lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO headrace\.operator\.camera: frame 1", first)
    assert [line.partition(": ")[2] for line in lines].count("frame 2") == 2


def test_a_program_that_configures_logging_gets_each_message_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "info")
    logging.basicConfig(format="mine: %(message)s")
    run(speaking)
    shown = capsys.readouterr().err.splitlines()
    assert shown[:2] == ["mine: frame 1", "mine: frame 2"]


def test_an_unknown_level_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LOG_LEVEL", "loud")
    app = App(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    with pytest.raises(ValueError, match="HEADRACE_LOG_LEVEL=loud: must be one of trace, debug, info"):
        app.run()
