"""The compute of an operator in its steady state: it works on one stream.

This is `NodeStreams._watched_compute` for the usual operator, with what happens in every compute written out, and
nothing else: its stream is made current, and what it received is looked at after every few computes (`lifetimes`).

Most operators on streams are functions that take an array and return one. They have a compute of their own here,
which takes the message, orders the stream, keeps the array alive, calls the function and sends its result, with no
call of headrace in between. Everything that is not of this kind goes through `receive` and `emit`, one by one: a
message with metadata, tensors, an output that has to wait.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.envelope import Envelope
from headrace._runtime.messages.ports import AT_START, NOTHING, InputPort, OutputPort
from headrace._runtime.streams.owners import add_owners
from headrace._runtime.streams.watch import Watched
from headrace.core.ports import IOSpec
from headrace.gpu.allocation import Allocation, in_use
from headrace.gpu.ambient import thread
from headrace.gpu.lasting_stream import Current, LastingStream

if TYPE_CHECKING:
    from headrace._runtime.messages.logs import ComputeLog
    from headrace._runtime.observer import Observer
    from headrace._runtime.streams.allocation import StreamAllocation
    from headrace._runtime.streams.lifetimes import Lifetimes
    from headrace._runtime.streams.running_operator import RunningOperator

_modules = sys.modules
# The output of a function without one: what it returns goes the general way, which reports it.
_NOWHERE = OutputPort(())
_NOWHERE.stamp_object = lambda data: data
# The input of an operator without one.
_NO_INPUT = InputPort(IOSpec("", IOSpec.IOType.INPUT, IOSpec.ANY_SIZE), ())


def steady_compute(
    node: RunningOperator,
    compute: Callable[..., None],
    current: LastingStream | None,
    allocation: StreamAllocation,
    lifetimes: Lifetimes,
    observer: Observer | None,
) -> Callable[..., None]:
    """Return a compute that keeps what it received alive, for an operator that uses one stream.

    With `current`, that stream is current in the compute.
    """
    log = None if observer is None else observer.log_of(node, compute)
    if log is not None:
        compute = log.compute
    if current is None:
        return _with_streams(compute, lifetimes, node.input.ports, log)
    plain = node.operator._plain_function
    if plain is not None and lifetimes.held.is_on and plain.compute is compute:
        return _plain_compute(node, current, allocation, lifetimes, log)
    return _on_stream(compute, current, allocation, lifetimes, node.input.ports, log)


def _with_streams(
    compute: Callable[..., None], lifetimes: Lifetimes, ports: list[InputPort], log: ComputeLog | None
) -> Callable[..., None]:
    """Return the compute of an operator that handles streams itself."""
    (reader,) = lifetimes.readers
    fences, numbers = reader.fences, reader.numbers
    end, look = numbers.append, lifetimes.look_unless_early
    first, *others = ports or [_NO_INPUT]  # most operators have one input
    now, computes, threads, timer = _parts_of(log)

    def compute_with_streams(op_input: Any, op_output: Any, context: Any) -> None:
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
            end(fences.last + 1)
            if len(numbers) >= reader.look_at:
                look()
            elif in_use:
                lifetimes.held.sort_allocations()

    return compute_with_streams


def _on_stream(
    compute: Callable[..., None],
    current: LastingStream,
    allocation: StreamAllocation,
    lifetimes: Lifetimes,
    ports: list[InputPort],
    log: ComputeLog | None,
) -> Callable[..., None]:
    """Return the compute of an operator whose plain code runs on its stream."""
    (reader,) = lifetimes.readers
    fences, numbers = reader.fences, reader.numbers
    end, look = numbers.append, lifetimes.look_unless_early
    first, *others = ports or [_NO_INPUT]
    now, computes, threads, timer = _parts_of(log)
    # The thread of the last compute, if the device stays current there; whether there is no other thread; and what
    # is current on that thread. A thread that has left the run remembers no libraries, so another one with its
    # number is not taken for it.
    known, is_always = -1, False
    here = Current()
    libraries, set_streams = current.libraries, current.make_current

    def make_current() -> None:
        nonlocal known, is_always, here, libraries, set_streams
        if get_ident() != allocation.current_on:
            allocation.make_own_current()
        here = thread.current  # which takes three times as long as the number of the thread
        current.enter(here)
        libraries, set_streams = current.libraries, current.make_current
        known, is_always = allocation.current_on, allocation.stays_current

    def compute_on_stream(op_input: Any, op_output: Any, context: Any) -> None:
        if (
            (is_always or get_ident() == known)
            and here.remembered is libraries
            and len(_modules) == current.modules
        ):
            here.innermost = current
            set_streams()
        else:
            make_current()
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
            end(fences.last + 1)
            if len(numbers) >= reader.look_at:
                look()
            elif in_use:
                lifetimes.held.sort_allocations()

    return compute_on_stream


def _plain_compute(
    node: RunningOperator,
    current: LastingStream,
    allocation: StreamAllocation,
    lifetimes: Lifetimes,
    log: ComputeLog | None,
) -> Callable[..., None]:
    """Return the compute of a function of one array.

    If it is recorded, it sends when it ends, which is one time.
    """
    assert node.operator._plain_function is not None
    general, function, input_name, output_name, emit = node.operator._plain_function
    (port,) = [port for port in node.input.ports if port.name == input_name]
    out = node.output.ports[output_name] if output_name else _NOWHERE
    receive = node.input.receive_taken
    (reader,) = lifetimes.readers
    fences, numbers, received = reader.fences, reader.numbers, lifetimes.held.received
    own = fences.stream
    events, record, look = fences.events, fences.record, lifetimes.look_unless_early
    keep, end = received.append, numbers.append
    now, computes, threads, timer = _parts_of(log)
    # As in `_on_stream`.
    known, is_always = -1, False
    here = Current()
    libraries, set_streams = current.libraries, current.make_current

    def make_current() -> None:
        nonlocal known, is_always, here, libraries, set_streams
        if get_ident() != allocation.current_on:
            allocation.make_own_current()
        here = thread.current
        current.enter(here)
        libraries, set_streams = current.libraries, current.make_current
        known, is_always = allocation.current_on, allocation.stays_current

    def compute_function(op_input: Any, op_output: Any, context: Any) -> None:
        if (
            (is_always or get_ident() == known)
            and here.remembered is libraries
            and len(_modules) == current.modules
        ):
            here.innermost = current
            set_streams()
        else:
            make_current()
        ended: Any = 0
        try:
            if log is not None:
                if threads is not None:
                    threads.append(get_ident())
                started = now()
                computes.append(started)
                if started >= timer.next:
                    log.is_timing = timer.begin(started)
            take = port.take
            kind = port.kind
            try:
                receipt = None if log is None else port.log
                if log is not None and receipt is not None and take is port.noted and not log.is_timing:
                    item = receipt.take_item()
                    rows = receipt.receipts
                    rows.append(AT_START)
                    rows.append(log.number)
                else:
                    item = take()
            except IndexError:
                general(op_input, op_output, context)
                return
            # A copy of `InputContext.receive` for an array with at most one fence and nothing else.
            if op_input.announces or port.kept is not received or port.own is not own:
                data = receive(port, item)
            elif type(item) is Envelope and type(item.data) is kind and item.extra is None:
                data = item.data
                theirs = item.fences
                if theirs is not None and item.number > theirs.completed and theirs.stream is not own:
                    own.wait(item.event)  # an observer changes it
                shared = port.shared
                try:
                    owner = port.memory_of(data) if in_use else port.owner_of(data)
                    if shared is None or type(owner) is Allocation:
                        keep(owner)
                    else:
                        known_frame = item.record
                        if known_frame is None:
                            known_frame = item.record = Watched(owner)
                        shared.append(known_frame)
                        known_frame = None
                    owner = None  # or it would seem to be held
                except Exception:  # a sparse tensor has no owner
                    add_owners(data, received)
            elif type(item) is kind:  # of an operator on the same stream
                data = item
                try:
                    keep(port.memory_of(data) if in_use else port.owner_of(data))
                except Exception:
                    add_owners(data, received)
            else:
                data = receive(port, item)
            item = None
            value = function(data)
            data = None  # as above
            if value is None:
                return
            if type(value) is not kind or out.pending or op_output.has_details:
                emit(op_output, value)
                return
            # A copy of `OutputContext.emit` and `stamping`.
            if out.fences is fences:
                number = fences.last + 1
                if number > fences.reach:
                    fences.add_event()
                event = events[number % len(events)]
                record(event)
                fences.last = number
                message: Any = Envelope()
                message.data = value
                message.fences = fences
                message.event = event
                message.number = number
                message.work = None
                message.extra = None
                message.record = None
                value = message
            elif out.stamp_object is not None:
                emit(op_output, value)
                return
            emission = None if log is None else out.log
            if log is not None and emission is not None and out.queues is out.noted:
                behind = emission.queue
                if len(behind) < emission.room:
                    ended = now()
                    rows = emission.emissions
                    rows.append(ended)
                    rows.append(log.number)
                    emission.number += 1
                    behind.append(value)
                    return
            for queue in out.queues:
                if len(queue) < queue.capacity:
                    queue.append(value)
                else:
                    queue.offer(value)
        finally:
            value = message = None  # what went to nobody would seem to be held
            if log is not None:
                if log.is_timing:
                    log.end_timing()
                log.number += 1
                computes.append(ended or now())
            port.item = NOTHING
            end(fences.last + 1)
            if len(numbers) >= reader.look_at:
                look()
            elif in_use:
                lifetimes.held.sort_allocations()

    return compute_function


def _parts_of(log: ComputeLog | None) -> tuple[Callable[[], Any], list[Any], list[Any] | None, Any]:
    """Return the clock, the notes of computes and of their threads, and the timer."""
    if log is None:
        return int, [], None, None
    return log.now, log.computes, log.threads if log.notes_threads else None, log.timer
