"""NodeStreams: the stream of an operator in a run, from receive to emit.

The operator has one stream (`layout`), made when the program first uses a device. From then on, in every compute:

- the stream is the current one of every library, made sure of when the compute begins (`_make_compute`);
- it is ordered after each message as it is received (`contexts.input`);
- what was received is kept until the stream has passed a fence after the program released it (`lifetimes`);
- each message carries a fence, unless all who receive it work on the same stream.

A program that uses no device pays nothing: its computes run as they are, but for the first one of each operator,
which may ask for a stream. If a later one is the first of all to ask, what it has received is memory of the host.

Further streams of the operator (`allocate_cuda_stream`, `set_cuda_stream`) are joined to its stream when the
compute ends, and to the stream of an output when it emits there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from headrace import gpu
from headrace._runtime.messages.envelope import Envelope, make_envelope
from headrace._runtime.messages.fences import Fences, ManagedStream, is_default
from headrace._runtime.messages.ports import NOTHING, InputPort, has_other_receivers, no_such_port, parts_of
from headrace._runtime.streams.lifetimes import Lifetimes, StreamFrames, limit_of
from headrace._runtime.streams.resends import Resends, holds_memory
from headrace._runtime.streams.run_streams import synchronize
from headrace._runtime.streams.stream_source import DEFAULT_STREAM, default_handle
from headrace.core.errors import StreamError
from headrace.gpu import array_libraries
from headrace.gpu.current import remember_stream, thread
from headrace.gpu.lasting_stream import Current, LastingStream

if TYPE_CHECKING:
    from headrace._runtime.streams.knobs import Knobs
    from headrace._runtime.streams.layout import PlannedStream
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace._runtime.streams.running_operator import RunningOperator

_modules: Final = sys.modules


class NodeStreams:
    """The streams of one operator in a run.

    All fields are changed in the operator's computes or between two computes, and never concurrently.

    Parameters
    ----------
    run
        The streams of the run.
    node
        The operator.
    planned
        Its stream in the layout; None for the operator that stands for a segment.

    Attributes
    ----------
    own
        The operator's stream, once it is made.
    lifetimes
        The computes that the stream may not have completed; None while there is no stream.
    knobs
        The scalars on the device that the operator asked for.
    first_values
        During the first compute, the attributes of the operator and its given knobs when it began.
    current_on
        The thread on which the operator's device is known to be current; -1 if it must be made current every time.
    """

    __slots__ = (
        *(
            "_compute",
            "_current",
            "_further",
            "_fences",
            "_limit",
            "_named",
            "_outputs",
            "_planned",
            "_ports",
            "_resends",
        ),
        *("current_on", "first_values", "knobs", "lifetimes", "node", "own", "run"),
    )

    def __init__(self, run: RunStreams, node: RunningOperator, planned: PlannedStream | None) -> None:
        self.run = run
        self.node = node
        self.own: ManagedStream | None = None
        self.lifetimes: Lifetimes | None = None
        self.knobs: Knobs | None = None
        self.first_values: tuple[dict[str, Any], dict[str, Any]] | None = None
        self.current_on = -1
        self._planned = planned
        self._limit = limit_of(node)
        self._ports = node.input.ports
        self._compute: Callable[..., None] = node.operator.compute
        self._current: LastingStream | None = None
        # The operator's own fences on each stream that it uses or emits on.
        self._fences: dict[ManagedStream, Fences] = {}
        # The streams beside its own, always in the same list, and those that it was given by name.
        self._further: list[ManagedStream] = []
        self._named: dict[str, ManagedStream | None] = {}
        # The streams chosen for outputs.
        self._outputs: dict[str, ManagedStream] = {}
        self._resends: Resends | None = Resends(node, run.checks)
        run.nodes.append(self)

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device."""
        return self.run.has_device

    @property
    def device_id(self) -> int:
        """The number of the device that the operator works on."""
        return self.run.device_of(self.node.operator)

    @property
    def used(self) -> list[ManagedStream]:
        """The streams that the operator works on."""
        return [] if self.own is None else [self.own, *self._further]

    # The compute, from outside.

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return the compute to run, wrapped with the work before and after it."""
        self._compute = compute
        return self._first_compute

    def expect_device(self) -> None:
        """Look for a device when the next compute begins; may be called from any thread."""
        if self.own is None and self.node.compute == self._compute:
            self.node.compute = self._first_compute

    def _first_compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Run the first compute, or the first one after a device may have come into use."""
        node, operator = self.node, self.node.operator
        if self.run.look_for_device():
            self.open()
        self.first_values = (dict(vars(operator)), dict(operator._headrace.knobs.given))
        has_stream = self.own is not None
        try:
            if has_stream:
                self._make_compute()(op_input, op_output, context)
            else:
                self._call_without_stream(partial(self._compute, op_input, op_output, context))
        finally:
            self.first_values = None
            if not has_stream:
                if self._further:
                    self._join()
                self._forget_items()
                if self.lifetimes is not None:
                    self.lifetimes.note_compute()
                if self.run.look_for_device():  # it may have imported a library
                    self.open()
            may_find_device = not self.run.is_active and array_libraries.is_being_imported()
            if node.compute == self._first_compute and not may_find_device:
                node.compute = self._compute if self.own is None else self._make_compute()

    def _call_without_stream(self, call: Callable[[], object]) -> None:
        """Call a method of the operator before a device is in use: it gets its stream if it asks."""
        here = thread.current
        before, here.ask = here.ask, self._open_if_possible
        restore = remember_stream()
        self.node.input.notes_items = True
        try:
            call()
        finally:
            here.ask = before
            self.node.input.notes_items = False
            if self.own is not None:
                restore()

    def _open_if_possible(self) -> None:
        if self.run.has_device:
            self.open()

    def _make_compute(self) -> Callable[..., None]:
        """Return the compute of an operator on its stream.

        Its stream is made current, and what it received is looked at after every few computes (`lifetimes`).
        """
        compute, current, lifetimes, run = self._compute, self._current, self.lifetimes, self.run
        assert current is not None
        assert lifetimes is not None
        assert self.own is not None
        device_id = self.own.device_id
        numbers, fences, unsorted = lifetimes.numbers, lifetimes.fences, lifetimes.held.unsorted
        end, ports, further = numbers.append, self._ports, self._further
        first = ports[0] if len(ports) == 1 else None  # most operators have one input
        # What is current on the thread of the last compute. A thread that has left the run remembers no libraries,
        # so another one with its number is not taken for it.
        here = Current()
        libraries: Any = None
        set_streams: Any = None
        known, is_always = -1, False

        def make_current() -> None:
            nonlocal here, libraries, set_streams, known, is_always
            self.make_current(device_id)
            here = thread.current  # which takes three times as long as the number of the thread
            current.enter(here)
            libraries, set_streams = current.libraries, current.make_current
            known = self.current_on
            is_always = known != -1 and run.is_on_one_thread

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
                compute(op_input, op_output, context)
            finally:
                if further:
                    self._join()
                if first is not None:
                    first.item = NOTHING
                else:
                    for port in ports:
                        port.item = NOTHING
                end(fences.last)
                if len(numbers) >= lifetimes.check_at:
                    lifetimes.check()
                elif unsorted:
                    lifetimes.sort()

        return compute_on_stream

    def call(self, method: Callable[[], object]) -> None:
        """Call the `start` or `stop` of the operator, with its stream current."""
        if not self.run.look_for_device():
            self._call_without_stream(method)
            return
        own = self.open()
        # It may be called in a compute of another operator, which adds this one to the run.
        restore = remember_stream()
        assert self._current is not None
        with gpu.on_device(own.device_id):
            self._current.enter(thread.current)
            try:
                method()
            finally:
                restore()

    def begin_with(self, begin: Callable[[], None]) -> None:
        """From the next compute on, call a function when a compute begins."""
        compute = self._compute

        def compute_after(op_input: Any, op_output: Any, context: Any) -> None:
            begin()
            compute(op_input, op_output, context)

        self._compute = compute_after
        self.node.compute = self._first_compute

    def items_received(self) -> list[Any]:
        """Return the items that this compute received at each input, for `receive_again`."""
        return [port.item for port in self._ports]

    def receive_again(self, items: list[Any]) -> None:
        """Treat this compute as if it had received the items of an earlier compute."""
        for port, item in zip(self._ports, items, strict=False):
            if item is not NOTHING:
                port.item = item
                if self.own is not None:
                    self.node.input.keep(port, item)

    def synchronize(self) -> None:
        """Wait until the operator's streams have finished all submitted work; release nothing."""
        for managed in self.used:
            synchronize(managed)

    def release(self) -> None:
        """Release all frames but those that the program holds, because the streams have finished."""
        self._forget_items()
        for fences in self._fences.values():
            fences.close()
        if self.lifetimes is not None:
            self.lifetimes.fences.close()
            self.lifetimes.frames.clear()

    def close(self) -> None:
        """Release everything, because there will be no more work."""
        self._forget_items()
        for fences in self._fences.values():
            fences.close()
        if self.lifetimes is not None:
            self.lifetimes.frames.remove(self.lifetimes)  # others may go on working on the stream
        self._resends = None
        for port in self.node.output.ports.values():
            port.stamp = port.stamp_tensors = None

    def close_knobs(self) -> None:
        """Free the memory of the knobs, because recordings that use it are gone."""
        if self.knobs is not None:
            self.knobs.close()

    # The operator's stream.

    def open(self) -> ManagedStream:
        """Work on the operator's stream from now on, and return it; in a compute, it is made current."""
        if self.own is None:
            assert self._planned is not None
            self.run.activate()
            self.work_on(self.run.make(self._planned))
            if thread.current.ask is not None:
                assert self._current is not None
                self.make_current(self.device_id)
                self._current.enter(thread.current)
        assert self.own is not None
        return self.own

    def work_on(self, frames: StreamFrames) -> None:
        """Work on a stream from now on."""
        node, own = self.node, frames.managed
        self.own = own
        if not frames.is_shared:
            self._fences[own] = frames.fences
        self.lifetimes = node.lifetimes = Lifetimes(node, frames, self._limit)
        self._current = LastingStream(_handle_of(own))
        for port in self._ports:
            port.own, port.frames = own, self.lifetimes.held
            port.is_shared = has_other_receivers(port)
        if self.run.brings and self._planned is not None:
            from headrace._runtime.streams.other_devices import OtherDevices

            others = OtherDevices(self)
            for port in self._ports:
                port.bring(others.bring)
        self._note_use(own)
        self.update_outputs()
        for port in self._ports:  # of a compute that has begun without
            if port.item is not NOTHING:
                node.input.keep(port, port.item)
        if node.compute == self._compute and self._planned is not None:
            node.compute = self._make_compute()

    def follow(self) -> None:
        """Send and receive as the flows of the operator are now, between two computes."""
        for port in self._ports:
            port.is_shared = self.own is not None and has_other_receivers(port)
        self.update_outputs()

    def make_current(self, device_id: int) -> None:
        """Make a device current on this thread, unless it is known to be; with several devices, at every call."""
        if get_ident() != self.current_on and self.run.make_current(device_id):
            self.current_on = get_ident()

    def fences_on(self, stream: ManagedStream) -> Fences:
        """Return the operator's fences on a stream."""
        found = self._fences.get(stream)
        if found is None:
            found = self._fences[stream] = Fences(stream)
        return found

    def fence_this_compute(self) -> None:
        """Insert a fence when this compute ends, because a sender asks when it is passed."""
        if self.lifetimes is not None:
            self.lifetimes.fence_next()

    def has_passed(self, turn: int, sender: ManagedStream | None, key: int) -> bool:
        """Return whether what a compute received is passed: by its work, and by what the operator keeps.

        The compute has ended, and its work is complete or in the order of the sender's stream; no later compute
        goes on with it; and no attribute of the operator holds memory of that key. May be called from any thread;
        `fence_this_compute` was called in that compute.
        """
        ago = turn - self.node.remaining
        if ago <= self.node.operator._headrace.computes_in_use or holds_memory(self.node.operator, key):
            return False
        lifetimes = self.lifetimes
        if lifetimes is None or self.own is sender:
            return True
        numbers = tuple(lifetimes.numbers)
        return ago > len(numbers) or lifetimes.fences.is_past(numbers[-ago] + 1)

    def reader_of(self, key: int, sender: RunningOperator, asked: Collection[RunningOperator]) -> str | None:
        """Return who may still read memory that came from a sender, and that the operator has sent on."""
        return None if self._resends is None else self._resends.reader_of(key, sender, asked)

    def expect_resends(self) -> None:
        """Note from now on who has received what the operator sends; may be called from any thread."""
        if self._resends is None or (self._resends.is_over and not self._resends.has_warned):
            self._resends = Resends(self.node, self.run.checks)
            self.update_outputs()

    # Methods that compute calls through its contexts.

    def own_handle(self, port: InputPort, sync_to_default: bool) -> Any:
        """Return the handle of the operator's stream, which is ordered after the messages received at a port."""
        own = self.own
        if own is None:
            self._must_have_received(port, "receive_cuda_stream")
            if not self.run.has_device:
                return DEFAULT_STREAM
            own = self.open()
        elif port.item is NOTHING:
            self._must_have_received(port, "receive_cuda_stream")
        if get_ident() != self.current_on:
            self.make_current(own.device_id)
        if sync_to_default:
            default = self.run.default_stream(own.device_id)
            if default is not own:
                default.wait(own.now())
                self._use(default)
        assert self._current is not None
        return self._current.handle

    def received_streams(self, port: InputPort) -> list[Any]:
        """Return the handle of the stream of each message received at a port, or None if its sender has none."""
        self._must_have_received(port, "receive_cuda_streams")
        if self.run.has_device and self.own is None:
            self.open()
        # A message without a fence comes from an operator on the same stream, or from one without a stream.
        senders = [feeder.streams.own for queue in port.queues for feeder in queue.feeders]
        own = None if self.own is None or self.own not in senders else self.own.handle
        return [
            part.fences.stream.handle if type(part) is Envelope and part.fences is not None else own
            for part in parts_of(port.item)
        ]

    def allocate(self, name: str) -> Any:
        """Return the operator's stream of this name, from its pool at the first call; None if none is left.

        The first name of an operator without inputs is that of its own stream: it has no other way to ask for it.
        """
        if not self.run.has_device:
            return None
        own = self.open()
        if name not in self._named:
            is_own = not (self._named or self._ports)
            self._named[name] = own if is_own else self.run.take_for(self.node.operator)
        found = self._named[name]
        if found is None:
            return None
        self._use(found)
        self.make_current(found.device_id)
        return _handle_of(found)

    def synchronize_streams(self, streams: Iterable[Any], target: Any) -> None:
        """Order a stream after others."""
        if target is None:
            raise StreamError(f"operator {self.node.name!r}: synchronize_streams needs a target stream")
        later = self.run.stream_of(self._handle(target, "synchronize_streams"))
        for stream in streams:
            if stream is None:
                continue
            earlier = self.run.stream_of(self._handle(stream, "synchronize_streams"))
            if (earlier.device_id, earlier.handle) != (later.device_id, later.handle):
                later.wait(earlier.now())

    def device_of(self, stream: Any) -> int:
        """Return the number of the device of a managed stream."""
        return self._managed(stream, "device_from_stream").device_id

    def knob(self, name: str, dtype: Any, value: Any) -> Any:
        """Return the operator's knob of this name."""
        if self.knobs is None:
            from headrace._runtime.streams.knobs import Knobs  # most programs have none

            self.knobs = Knobs(self)
        return self.knobs.get(name, dtype, value)

    def hand_out(self, port: InputPort, readers: Iterable[Any]) -> Any:
        """Return an event after the work behind the messages of a port, for a program outside of the run.

        Returns None if there is no work. What was received is also kept until the work so far on the program's
        streams is complete, whose handles `readers` are.
        """
        own = self.own
        if own is None:
            return None
        for reader in readers:
            own.wait(self.run.stream_of(reader).now())
        return own.now()

    def set_output(self, stream: Any, port: str) -> None:
        """Attach a stream to the messages emitted at a port."""
        queues = self.node.output_queues
        name = port or (next(iter(queues)) if len(queues) == 1 else "")
        if name not in queues:
            raise no_such_port(self.node.name, "output", port, queues)
        if not self.run.has_device:
            return  # there is no stream
        own = self.open()
        managed = self._managed(stream, "set_cuda_stream")
        if self._outputs.get(name, own) is not managed:
            self._outputs[name] = managed
            self._use(managed)
            self.update_outputs()

    def prepare_emit(self, data: Any, after: Any, constant: bool) -> None:
        """Let the next message come after events of the program, or be known as constant."""
        if constant and self._resends is not None:
            self._resends.is_constant = True
        if after is None or not self.run.has_device:
            return
        own = self.open()
        for event in after if isinstance(after, (list, tuple)) else (after,):
            own.wait_for(event, f"operator {self.node.name!r}: emit(..., after=)")

    # Inside.

    def _forget_items(self) -> None:
        for port in self._ports:
            port.item = NOTHING

    def _note_use(self, managed: ManagedStream) -> None:
        """Tell the run and its observer that the operator works on a stream."""
        self.run.manage(managed)
        if self.run.observer is not None:
            self.run.observer.uses_stream(self.node, managed)
        if self.knobs is not None:
            self.knobs.order(managed)

    def _use(self, managed: ManagedStream) -> None:
        """Expect work of the operator on a stream beside its own, and join it when a compute ends."""
        if managed is self.own or managed in self._further:
            return
        self._further.append(managed)
        if self.lifetimes is not None:
            self.lifetimes.frames.user.add(managed)
        self._note_use(managed)
        self.update_outputs()

    def _join(self) -> None:
        """Order the operator's stream after its further streams."""
        own = self.own
        assert own is not None
        for stream in self._further:
            own.wait(self._event_on(stream))

    def _event_on(self, stream: ManagedStream) -> Any:
        """Return the event of a fence after the work so far on a stream."""
        fences = self.fences_on(stream)
        if fences.last == fences.reach:
            fences.update(fences.completed + 1)
        return fences.insert()

    def update_outputs(self) -> None:
        """Update how each output sends messages, after a change of the streams or of the flows; from any thread."""
        with self.run.lock:
            self._update_outputs()

    def _update_outputs(self) -> None:
        own, resends = self.own, self._resends
        if resends is not None and (resends.is_over or own is None):
            resends = None  # without a stream, readers keep nothing by which it is known that they are done
        for name in self.node.output_queues:
            port = self.node.output.ports[name]
            stream = port.stream = self._outputs.get(name, own)
            stamp: Callable[[Any], Any] | None = None
            if stream is not None:
                stamp = self.fences_on(stream).stamp
                others = [each for each in self.used if each is not stream]
                if others:
                    stamp = self._after(others, stream, stamp)
            port.stamp_tensors = stamp
            if (
                stream is not None
                and stream is own
                and not self._further
                and self._stays_on_stream(port.queues)
            ):
                # Receivers of one message share the record that keeps it alive.
                stamp = make_envelope if len(port.queues) > 1 else None
            if resends is not None:
                port.stamp_tensors = resends.stamping(port, name, port.stamp_tensors)
                stamp = resends.stamping(port, name, stamp)
            port.stamp = stamp

    def _after(
        self, others: list[ManagedStream], stream: ManagedStream, stamp: Callable[[Any], Any]
    ) -> Callable[[Any], Any]:
        """Return a function that orders a stream after others, and makes a message."""

        def join_and_stamp(data: Any) -> Any:
            for other in others:
                stream.wait(self._event_on(other))
            return stamp(data)

        return join_and_stamp

    def _stays_on_stream(self, queues: Iterable[Any]) -> bool:
        """Return whether all who receive a message work on its stream, and nobody needs its fence."""
        run, planned = self.run, self._planned
        if planned is None or (run.observer is not None and run.observer.sees_messages):
            return False
        if self.node.operator._headrace.dynamic_flows is not None:
            return False
        consumers = [queue.consumer for queue in self.node.outputs if queue.consumer is not None]
        return all(
            consumer.streams._planned is planned
            and not consumer.operator._headrace.moves_messages
            and not any(map(_waits, consumer.conditions))
            for consumer in consumers
        )

    def _must_have_received(self, port: InputPort, caller: str) -> None:
        if port.item is NOTHING:
            port.recall(self.node.remaining)
        if port.item is NOTHING:
            raise StreamError(
                f"operator {self.node.name!r}: {caller}({port.name!r}) before receive({port.name!r}); receive "
                "first, because the streams arrive with the messages"
            )

    def _managed(self, stream: Any, caller: str) -> ManagedStream:
        managed = self.run.find(self._handle(stream, caller))
        if managed is None:
            raise StreamError(
                f"operator {self.node.name!r}: {caller} takes a stream that headrace manages (from "
                f"receive_cuda_stream, receive_cuda_streams or allocate_cuda_stream), not {int(stream):#x}"
            )
        return managed

    def _handle(self, stream: Any, caller: str) -> Any:
        """Return a handle unchanged; raise for anything else."""
        # A separate variable: narrowed to int, `stream` would be a plain number in the compiled build.
        is_handle = isinstance(stream, int)
        if is_handle:
            return stream
        if stream is None:
            hint = "None, which allocate_cuda_stream returns if the pool has no stream left"
        else:
            hint = f"an object of type {type(stream).__name__!r}"
        raise StreamError(
            f"operator {self.node.name!r}: {caller} takes the handle of a stream (from receive_cuda_stream, "
            f"receive_cuda_streams or allocate_cuda_stream), not {hint}"
        )


def _handle_of(managed: ManagedStream) -> Any:
    """Return the handle of a stream for programs; that of a default stream is 0, so it is false."""
    return default_handle(managed.device_id) if is_default(managed.handle) else managed.handle


def _waits(condition: Any) -> bool:
    """Return whether a condition waits for the work behind messages."""
    return condition.waits_for_streams or any(map(_waits, condition.terms))
