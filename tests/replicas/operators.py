"""Operators for replicas in other processes, which import them from here."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from headrace import Operator, OperatorSpec, op


@op
def square(value: Any) -> Any:
    return value * value


@op
def count_down(value: int) -> Any:
    yield from range(value, 0, -1)


class Scale(Operator):
    """Multiplies, and tells in the metadata which process did."""

    gain: int

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("gain", 2, live=True)

    def start(self) -> None:
        self.computes = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        self.computes += 1
        self.metadata.update(process=os.getpid(), computes=self.computes)
        op_output.emit(value * self.gain, "out")


class Fragile(Scale):
    """Raises for negative values, and ends its process for 13."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        if value == 13:
            os.kill(os.getpid(), signal.SIGKILL)
        if value < 0:
            raise ValueError(f"{value} is negative")
        op_output.emit(value * self.gain, "out")


class TornFrame(Exception):
    """An exception with a constructor of its own."""

    def __init__(self, camera: str, line: int) -> None:
        super().__init__(f"{camera} is torn at line {line}")
        self.line = line


class Tearing(Scale):
    """Raises an exception that has a cause."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        raise TornFrame("front", 3) from OSError("no light")


class Freezing(Scale):
    """Freezes its process, once."""

    struck: str

    def setup(self, spec: OperatorSpec) -> None:
        super().setup(spec)
        spec.param("struck", "")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        if not os.path.exists(self.struck):
            open(self.struck, "x").close()
            os.kill(os.getpid(), signal.SIGSTOP)
        op_output.emit(value, "out")


class Unwilling(Scale):
    """Cannot start in the first replica."""

    def start(self) -> None:
        if self.name.endswith("[0]"):
            raise OSError("no such model")


class Sealed:
    """Can be pickled, and not be unpickled."""

    def __reduce__(self) -> Any:
        return _open, ()


def _open() -> None:
    raise LookupError("no key")


@op
def leave(value: Any) -> Any:
    """Leave the program, or return what cannot be pickled."""
    if value == "leave":
        raise SystemExit(3)
    return lambda: value


@op
def where(value: Any) -> Any:
    """Return the process, and what it knows of the program's environment; for "seal", nobody knows what."""
    return (
        Sealed()
        if value == "seal"
        else (os.getpid(), os.environ.get("MODEL"), os.environ.get("HEADRACE_COUNT"))
    )


@op
def terminated(value: Any) -> Any:
    """Send SIGTERM to the process and to the one that started it."""
    for process in (os.getpid(), os.getppid()):
        os.kill(process, signal.SIGTERM)
    return value


class Telling(Scale):
    """Tells what it knows of its run, and stops itself, the run ("run ") or an operator ("run name") at 3."""

    stops: str

    def setup(self, spec: OperatorSpec) -> None:
        super().setup(spec)
        spec.param("stops", "")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        context.knob("level", "uint8", 1)
        if value == 3 and self.stops:
            self.stop_execution() if self.stops == "itself" else self.fragment.stop_execution(self.stops[4:])
        try:
            raise KeyError(value)
        except KeyError:
            self.logger.warning("at %s", value, exc_info=True, extra={"place": lambda: 1})
        op_output.emit((value, context.timestamp, self.fragment.name), "out")


class Stuck(Scale):
    """Waits until somebody opens the file that it is given."""

    def setup(self, spec: OperatorSpec) -> None:
        super().setup(spec)
        spec.deadline("1ms")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        path = op_input.receive("in")
        with open(path) as file:
            op_output.emit(file.read(), "out")


class Pair(Operator):
    """Adds what comes from two inputs, the second of which may stay empty."""

    def setup(self, spec: OperatorSpec) -> None:
        from headrace import ConditionType

        spec.input("one")
        spec.input("other").condition(ConditionType.NONE)
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        one, other = op_input.receive("one"), op_input.receive("other")
        op_output.emit(np.asarray(one) + (0 if other is None else other), "out")


class Picky(Scale):
    """Receives every other message."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.computes += 1
        if self.computes % 2:
            op_output.emit(op_input.receive("in"), "out")
