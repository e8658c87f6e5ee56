"""The compute of an operator in its steady state: it works on one stream.

This is `NodeStreams._watched_compute` for the usual operator, with what happens in every compute written out, and
nothing else: its stream is made current, and what it received is looked at after every few computes (`lifetimes`).
An operator that keeps nothing (`in_order`) looks at the device after every few dozen.
What an observer writes down of a compute is written here (`ComputeLog`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.messages.ports import NOTHING, InputPort
from headrace.core.ports import IOSpec
from headrace.gpu.ambient import thread
from headrace.gpu.lasting_stream import Current, LastingStream

if TYPE_CHECKING:
    from headrace._runtime.observer import Observer
    from headrace._runtime.streams.allocation import StreamAllocation
    from headrace._runtime.streams.in_order import Step
    from headrace._runtime.streams.lifetimes import Lifetimes
    from headrace._runtime.streams.running_operator import RunningOperator

_modules: Final = sys.modules
# The input of an operator without one.
_NO_INPUT = InputPort(IOSpec("", IOSpec.IOType.INPUT, IOSpec.ANY_SIZE), ())


def steady_compute(
    node: RunningOperator,
    compute: Callable[..., None],
    current: LastingStream | None,
    allocation: StreamAllocation,
    lifetimes: Lifetimes,
    observer: Observer | None,
    in_order: tuple[Step, Callable[[], None]] | None,
) -> Callable[..., None]:
    """Return a compute that keeps what it received alive, for an operator that uses one stream.

    With `current`, that stream is current in the compute. Otherwise the operator handles streams itself. With
    `in_order` it keeps nothing, and the function is called when a step has ended.
    """
    step: Any = None
    end_step: Any = None
    if in_order is not None:
        step, end_step = in_order
    log = None if observer is None else observer.log_of(node, compute)
    now: Callable[[], Any] = int
    computes: list[Any] = []
    threads: list[Any] | None = None
    timer: Any = None
    if log is not None:
        compute, now, computes, timer = log.compute, log.now, log.computes, log.timer
        threads = log.threads if log.notes_threads else None
    (reader,) = lifetimes.readers
    fences, numbers = reader.fences, reader.numbers
    end, look = numbers.append, lifetimes.look_unless_early
    sort, unsorted = lifetimes.held.sort, lifetimes.held.unsorted
    first, *others = node.input.ports or [_NO_INPUT]  # most operators have one input
    if current is None and log is None and not others:

        def compute_alone(op_input: Any, op_output: Any, context: Any) -> None:
            # `compute_steadily` for an operator that handles streams itself: a fifth of its bytecodes less.
            try:
                compute(op_input, op_output, context)
            finally:
                first.item = NOTHING
                end(fences.last)
                if len(numbers) >= reader.look_at:
                    look()
                elif unsorted:
                    sort()

        return compute_alone
    # The thread of the last compute, if the device stays current there; whether there is no other thread; and what
    # is current on that thread. A thread that has left the run remembers no libraries, so another one with its
    # number is not taken for it.
    known, is_always = -1, False
    here = Current()
    libraries: Any = None
    set_streams: Any = None

    def make_current(current: LastingStream) -> None:
        nonlocal known, is_always, here, libraries, set_streams
        if get_ident() != allocation.current_on:
            allocation.make_own_current()
        here = thread.current  # which takes three times as long as the number of the thread
        current.enter(here)
        libraries, set_streams = current.libraries, current.make_current
        known, is_always = allocation.current_on, allocation.stays_current

    if current is not None and current.group is not None and step is not None and log is None:
        group = current.group

        def compute_in_order(op_input: Any, op_output: Any, context: Any) -> None:
            # Only operators that name no stream have run on this thread since one of them made the stream current.
            # `receive` leaves nothing behind, so there is nothing to do if the compute fails. Work of a library
            # that was imported meanwhile is on the default stream until the end of the step, and in order.
            if here.group is group and (is_always or get_ident() == known):
                here.innermost = current
            else:
                make_current(current)
            compute(op_input, op_output, context)
            step.left -= 1
            if step.left <= 0:
                end_step()

        return compute_in_order

    def compute_steadily(op_input: Any, op_output: Any, context: Any) -> None:
        if current is not None:
            if (
                (is_always or get_ident() == known)
                and here.remembered is libraries
                and len(_modules) == current.modules
            ):
                here.innermost, here.group = current, current.group
                set_streams()
            else:
                make_current(current)
        try:
            if log is not None:
                if threads is not None:
                    threads.append(get_ident())
                started = now()
                computes.append(started)
                if started >= timer.next:
                    log.is_timing = timer.begin(started)
            compute(op_input, op_output, context)
        finally:
            if log is not None:
                if log.is_timing:
                    log.end_timing()
                log.number += 1
                computes.append(now())
            first.item = NOTHING
            if others:
                for port in others:
                    port.item = NOTHING
            if step is not None:
                step.left -= 1
                if step.left <= 0:
                    end_step()
            else:
                end(fences.last)
                if len(numbers) >= reader.look_at:
                    look()
                elif unsorted:
                    sort()

    return compute_steadily
