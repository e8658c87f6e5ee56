"""The log of a program that was written for the SDK, and its data loggers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace_holoscan import alias, logger
from headrace_holoscan.conditions import CountCondition
from headrace_holoscan.core import Application, Operator
from headrace_holoscan.data_loggers import (
    AsyncConsoleLogger,
    BasicConsoleLogger,
    GXFConsoleLogger,
    SimpleTextSerializer,
)
from headrace_holoscan.logger import LogLevel, log_level, set_log_level, set_log_pattern
from headrace_holoscan.operators import PingRxOp


@pytest.fixture(autouse=True)
def _log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HEADRACE_LOG_LEVEL", "HOLOSCAN_LOG_LEVEL", "HOLOSCAN_LOG_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("headrace.core.log.has_own_handlers", lambda: False)
    yield
    logger.hide()


class Values(Operator):
    """Sends an object of each kind."""

    values = (1, [1, "a"], {"t": np.zeros(2, np.float32)})

    def setup(self, spec: Any) -> None:
        spec.output("out")
        self.count = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.metadata["first"] = 1
        self.metadata["second"] = "x"
        op_output.emit(self.values[self.count], "out")
        self.count += 1


class App(Application):
    def __init__(self, kind: Any, **options: Any) -> None:
        self.kind, self.given = kind, options
        super().__init__()

    def compose(self) -> None:
        tx = Values(self, CountCondition(self, len(Values.values)), name="tx")
        self.add_flow(tx, PingRxOp(self, name="rx"))
        self.add_data_logger(self.kind(self, **self.given))


def lines(capsys: pytest.CaptureFixture[str], kind: Any = BasicConsoleLogger, **options: Any) -> list[str]:
    App(kind, **options).run()
    return [
        line
        for line in capsys.readouterr().err.splitlines()
        if "ConsoleLogger[" in line or "Metadata" in line
    ]


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (BasicConsoleLogger, "BasicConsoleLogger"),
        (GXFConsoleLogger, "BasicConsoleLogger"),
        (AsyncConsoleLogger, "AsyncConsoleLogger"),
    ],
)
def test_a_data_logger_writes_to_the_log(capsys: pytest.CaptureFixture[str], kind: Any, label: str) -> None:
    more = (
        {"enable_large_data_queue": False} if kind is AsyncConsoleLogger else {}
    )  # or they may overtake each other
    found = lines(capsys, kind, log_inputs=False, log_tensor_data_content=False, **more)
    assert [line.rpartition("] ")[2] for line in found[::2]] == [
        "Python(int): 1",
        "Python(list): [1, 'a']",
        found[4].rpartition("] ")[2],
    ]
    assert all(f"{label}[ID:tx.out]" in line for line in found[::2])
    assert ["Category:Message (std::any)" in line for line in found[::2]] == [True, True, False]
    assert "Category:TensorMap" in found[4]
    newest_first = "MetadataDictionary(size=2) {'second': Python(str): 'x', 'first': Python(int): 1}"
    assert set(found[1::2]) == {newest_first}


PROGRAM = """
import holoscan.operators.holoviz
from holoscan.core import Application
from holoscan.conditions import *
from holoscan.data_loggers.basic_console_logger import BasicConsoleLogger
from holoscan.operators import ping_rx
from holoscan.operators.ping_tx import PingTxOp

class Ping(Application):
    def compose(self):
        tx = PingTxOp(self, CountCondition(self, 1), name="tx")
        self.add_flow(tx, ping_rx.PingRxOp(self, name="rx"))
        self.add_data_logger(BasicConsoleLogger(self))

Ping().run()
"""


def test_a_program_has_the_modules_and_the_log_of_the_sdk(capsys: pytest.CaptureFixture[str]) -> None:
    alias.install()
    try:
        exec(PROGRAM, {"__name__": "__main__"})
    finally:
        alias.uninstall()
    printed = capsys.readouterr()
    assert printed.out == "Rx message value: 1\n"
    found = [line for line in printed.err.splitlines() if "BasicConsoleLogger" in line]
    assert [line.partition("]")[0] for line in found] == ["[info"] * 2


@pytest.mark.usefixtures("no_device_yet")
def test_contents_may_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    app: Any = App(None)
    serializer = SimpleTextSerializer(app, log_python_object_contents=False)
    found = lines(capsys, serializer=serializer, allowlist_patterns=["rx"])
    assert found[0].endswith("[Stream: none] Python Object")
    assert found[1] == "MetadataDictionary(size=2) {'second': Python Object, 'first': Python Object}"


def test_levels_and_patterns_act(capsys: pytest.CaptureFixture[str]) -> None:
    assert [level.name for level in LogLevel] == [
        "TRACE",
        "DEBUG",
        "INFO",
        "WARN",
        "ERROR",
        "CRITICAL",
        "OFF",
    ]
    assert (log_level(), int(LogLevel.OFF)) == (LogLevel.INFO, 6)
    assert lines(capsys)[0].startswith("[info] [")
    set_log_level(LogLevel.WARN)
    assert log_level() is LogLevel.WARN
    assert lines(capsys) == []
    set_log_level(LogLevel.TRACE)
    set_log_pattern("SHORT")
    assert lines(capsys)[0].startswith("[info] BasicConsoleLogger[")
    set_log_pattern("%n|%v")
    assert lines(capsys)[0].startswith("headrace.data|BasicConsoleLogger[")
    set_log_pattern("no message")
    assert lines(capsys)[0].startswith("headrace.data|")
    for wrong in (3, "WARN", None):
        with pytest.raises(TypeError, match=r"LogLevel\.WARN"):
            set_log_level(wrong)  # type: ignore[arg-type]


def test_the_environment_wins(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLOSCAN_LOG_LEVEL", "ERROR")
    set_log_level(LogLevel.TRACE)
    assert log_level() is LogLevel.ERROR
    assert lines(capsys) == []
    monkeypatch.setenv("HOLOSCAN_LOG_LEVEL", "WARNING")
    assert log_level() is LogLevel.WARN
    monkeypatch.setenv("HOLOSCAN_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("HOLOSCAN_LOG_FORMAT", "LONG")
    set_log_pattern("SHORT")
    assert lines(capsys)[0].startswith("[20")


def test_the_log_of_a_run_that_fails_leaves_the_traceback_to_the_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            raise ValueError("broken")

    class Failing(Application):
        def compose(self) -> None:
            self.add_operator(Broken(self, CountCondition(self, 1), name="broken"))

    logger.show()
    with pytest.raises(ValueError, match="broken"):
        Failing().run()
    text = capsys.readouterr().err
    assert "ValueError: broken" in text
    assert "Traceback" not in text
