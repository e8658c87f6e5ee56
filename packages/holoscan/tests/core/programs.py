"""Small programs of the SDK, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace_holoscan.conditions import CountCondition
from headrace_holoscan.core import Application, Operator, OperatorSpec

Seen = list[Any]


class Source(Operator):
    """Counts."""

    def __init__(self, fragment: Any, count: int = 2, name: str = "source") -> None:
        self.sent = 0
        super().__init__(fragment, CountCondition(fragment, count), name=name)

    def setup(self, spec: OperatorSpec) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.sent += 1
        op_output.emit(self.sent, "out")


class Sink(Operator):
    """Notes what it receives."""

    def __init__(self, fragment: Any, seen: Seen, name: str = "sink") -> None:
        self.seen = seen
        super().__init__(fragment, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.seen.append(op_input.receive("in"))


def composed(compose: Callable[[Any], object]) -> Any:
    """Return an application that composes with a function."""

    class Program(Application):
        def compose(self) -> None:
            compose(self)

    return Program(["python", "program.py"])


def run(compose: Callable[[Any], object]) -> None:
    """Run such an application."""
    assert composed(compose).run() is None
