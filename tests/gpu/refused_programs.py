"""Operators that cannot be recorded, and programs around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import gpu
from tests.gpu.segment_programs import COUNT, Sink, Source, Stage, Work, affine, chain, launch

__all__ = ["emit_twice", "program", "sync_stream", "use_host", "use_metadata", "work"]


def program(
    body: Callable[..., None], member: Callable[[Any], None] = lambda member: None, **options: Any
) -> Any:
    """Return a program whose segment is a stage, an operator of this compute, and another stage."""

    def compose(app: Any) -> None:
        first, last = Stage(app, name="first"), Stage(app, name="last")
        middle = Work(app, body=body, name="middle")
        member(middle)
        source = Source(app, details=True, name="source")
        chain(app, source, first, middle, last, Sink(app, late=2, name="sink"))
        app.capture(first, middle, last, name="three", **options)

    return compose


def work(self: Any, op_input: Any, op_output: Any, **emitting: Any) -> Any:
    """Do what a stage does, and return the stream."""
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, frame.shape[0], 2, 3)
    op_output.emit(result, "out", **emitting)
    return stream


def sync_stream(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    stream = work(self, op_input, op_output)
    stream.stream.sync()  # here


def use_metadata(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    result = self.new(stream, frame)
    launch(stream, affine, result, frame, COUNT, 2, self.metadata["from source"])
    op_output.emit(result, "out")


def use_host(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    op_input.receive_cuda_stream("in")
    op_output.emit(frame, "out")
    if gpu.is_capturing(op_input.receive_cuda_stream("in")):
        raise KeyError("only here")  # here


def emit_twice(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
    frame = op_input.receive("in")
    stream = op_input.receive_cuda_stream("in")
    launch(stream, affine, frame, frame, COUNT, 2, 3)
    if gpu.is_capturing(stream):
        op_output.emit(frame, "out")
    op_output.emit(frame, "out")
