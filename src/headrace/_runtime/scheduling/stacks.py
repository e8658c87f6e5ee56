"""Stacks: where the threads of a run are at a moment, for people who look for a compute that does not end.

A compute notes the thread that it runs on only if it has a deadline. Otherwise the thread is found by the code of
the operator's compute in the stacks of all threads. Compiled code has no frames, but operators are not compiled.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any

from headrace.core.function import FunctionOperator

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from headrace.core.operator import Operator


def stack_of(thread: int, operator: Operator | None = None) -> str:
    """Return the stack of a thread, from the compute of an operator on, if that is in it; "" without the thread."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return ""
    frames = _frames(frame)
    begin = 0 if operator is None else max(_compute_in(frames, operator), 0)
    return _text(frames[begin:])


def stacks_of(operators: Iterable[Operator]) -> dict[str, str]:
    """Return the stack of each of these operators whose compute is in the stack of a thread."""
    threads = [_frames(frame) for frame in sys._current_frames().values()]
    found: dict[str, str] = {}
    for operator in operators:
        for frames in threads:
            begin = _compute_in(frames, operator)
            if begin >= 0:
                found[operator.name] = _text(frames[begin:])
                break
    return found


def _frames(innermost: FrameType) -> list[FrameType]:
    """Return the frames of a stack, the outermost first."""
    found: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _compute_in(frames: list[FrameType], operator: Operator) -> int:
    """Return the place of the frame in which an operator computes, or -1."""
    if isinstance(operator, FunctionOperator):
        function = operator.declared.function
        return next((place for place, frame in enumerate(frames) if frame.f_code is function.__code__), -1)
    compute: Any = operator.compute
    code = getattr(getattr(compute, "__func__", compute), "__code__", None)
    for place, frame in enumerate(frames):
        # Several operators may have the same class.
        if frame.f_code is code and frame.f_locals.get("self", operator) is operator:
            return place
    return -1


def _text(frames: list[FrameType]) -> str:
    lines = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames).format()
    return "".join(lines).rstrip()
