"""Operators that are written where a test needs them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from headrace.conditions import CountCondition
from headrace.core import Operator, OperatorSpec


class Step(Operator):
    """An operator with the ports and the compute that it is given; `ticks` counts its computes.

    Parameters
    ----------
    inputs, outputs
        The ports: names, or pairs of a name and the keywords of ``spec.input`` and ``spec.output``.
    body
        What a compute does: ``body(self, op_input, op_output)``, or with a fourth parameter, the context.
    setup
        Declares what names of ports cannot.
    """

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        inputs: Iterable[Any] = (),
        outputs: Iterable[Any] = (),
        body: Callable[..., Any] | None = None,
        setup: Callable[[OperatorSpec], None] | None = None,
        **kwargs: Any,
    ) -> None:
        self._inputs, self._outputs, self._body, self._setup = inputs, outputs, body, setup
        self._wants_context = body is not None and _wants_context(body)
        self.ticks = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        for port in self._inputs:
            spec.input(port) if isinstance(port, str) else spec.input(port[0], **port[1])
        for port in self._outputs:
            spec.output(port) if isinstance(port, str) else spec.output(port[0], **port[1])
        if self._setup is not None:
            self._setup(spec)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.ticks += 1
        if self._wants_context:
            self._body(self, op_input, op_output, context)
        elif self._body is not None:
            self._body(self, op_input, op_output)


def source(app: Any, values: Iterable[Any], *args: Any, name: str = "source", **kwargs: Any) -> Step:
    """Return an operator that emits the values one by one and then never runs again."""
    values = list(values)
    return Step(
        app,
        CountCondition(app, len(values)),
        *args,
        outputs=["out"],
        body=lambda self, i, o: o.emit(values[self.ticks - 1], "out"),
        name=name,
        **kwargs,
    )


def once(app: Any, name: str = "once") -> Step:
    """Return a source that emits 1, one time."""
    return source(app, [1], name=name)


def sink(app: Any, taken: list[Any], *args: Any, name: str = "sink", **kwargs: Any) -> Step:
    """Return an operator that keeps what it receives."""
    return Step(
        app, *args, inputs=["in"], body=lambda self, i, o: taken.append(i.receive("in")), name=name, **kwargs
    )


def through(app: Any, *args: Any, name: str, change: Callable[[Any], Any] = lambda value: value) -> Step:
    """Return an operator that passes on what it receives."""
    return Step(
        app,
        *args,
        inputs=["in"],
        outputs=["out"],
        body=lambda self, i, o: o.emit(change(i.receive("in")), "out"),
        name=name,
    )


def _wants_context(body: Callable[..., Any]) -> bool:
    parameters = inspect.signature(body).parameters.values()
    required = [one for one in parameters if one.default is one.empty and one.kind is not one.KEYWORD_ONLY]
    return len(required) > 3 or any(one.kind is one.VAR_POSITIONAL for one in parameters)
