"""NodeStreams: an operator's streams in a run, the order between them, and what must stay alive.

Most operators never touch a stream, and cost nothing here. What an operator that does costs, for each
compute: a mark (one event record) at each `emit` and a wait for each message that comes from another stream;
on the device, never waited for by the host.

**Lifetimes.** CuPy and PyTorch give a freed block out again at once to the stream it was allocated on. They
cannot know that another stream still reads it. So what an operator received is kept until its streams have
passed a mark that comes after the end of its compute: the one that the next `emit` leaves anyway, or, for an
operator that emits nothing, one that is left for the purpose after every other compute. Marks are looked at
when the operator runs: asking whether an event is done costs less than being told.

**How far the host runs ahead.** An operator with so many unfinished computes (`Operator.max_in_flight`) is
not ready until the oldest is done; then, and only then, it asks to be told.

What an operator received before it first asked for a stream must be kept too. So the first compute of every
operator is watched; if it asks for no stream, it is not watched any more. For one that asks later, after all,
what its compute has in its variables at that moment is kept, this once: before it had a stream, nothing it
had let go of could be read on one.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock.core.errors import PortError, StreamError, UnorderedStreamWarning, choices
from penstock.runtime.contexts import Batch
from penstock.runtime.managed_stream import ManagedStream, Mark
from penstock.runtime.message import Message
from penstock.runtime.run_streams import source_of

if TYPE_CHECKING:
    from penstock.core.operator import Operator
    from penstock.runtime.node import Node
    from penstock.runtime.run_streams import RunStreams
    from penstock.runtime.stream_source import StreamSource

__all__ = ["NodeStreams"]


# With so many unfinished computes an operator looks whether the device has finished some: each look is a call into
# the driver, and every one of them frees what is kept a little sooner.
_EAGER = 4
_NOTHING = object()


class NodeStreams:
    """The streams of one operator in a run."""

    __slots__ = (
        "_ambient",
        "_asked",
        "_checks",
        "_current_on",
        "_named",
        "_opened",
        "_ordered",
        "_outputs",
        "_own",
        "_prepared",
        "_streams",
        "_unfinished",
        "_unmarked",
        "_watching",
        "in_flight",
        "limit",
        "node",
        "received",
        "run",
    )

    def __init__(self, run: RunStreams, node: Node) -> None:
        self.run = run
        self.node = node
        self._checks = run.checks
        self._current_on = -1  # the thread on which its device is known to be current
        # Every stream whose work may read what the operator received.
        self._streams: list[ManagedStream] = []
        self._own: ManagedStream | None = None
        self._opened = False  # whether the pool has been asked for the own stream
        self._prepared = False  # whether receive_cuda_stream has nothing left to find out
        self._asked = False  # whether the operator has asked anything about streams
        self._named: dict[str, ManagedStream | None] = {}
        self._outputs: dict[str, ManagedStream] = {}
        self._ambient: gpu.use_stream | None = None
        # Of this compute: what was received, by port, and (for the checker) where it is ordered after that.
        self.received: dict[str, Any] = {}
        self._ordered: set[str] = set()
        # Marks that come after the ends of computes the device may not have finished, and keep what those received;
        # and what the last compute received, if no mark comes after its end yet.
        self._unfinished: deque[Mark] = deque()
        self._unmarked: dict[str, Any] | None = None
        self.in_flight = 0
        limit = node.operator.max_in_flight
        self.limit = run.fragment.max_in_flight if limit is None else limit
        if self.limit < 1:
            raise ValueError(f"operator {node.name!r}: max_in_flight must be at least 1, not {self.limit}")
        self._watching = False
        self._watch()

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device."""
        return self.run.has_device

    # The compute, from outside.

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Give the compute to run: where the operator wants its stream to be the current one, with that."""
        operator = self.node.operator
        if not (operator.spec.is_ambient or (operator.is_function and _gpu_is_in_sight(operator))):
            return compute

        def compute_on_stream(op_input: Any, op_output: Any, context: Any) -> None:
            ambient = self._ambient
            if ambient is None:
                own = self._open() if self.is_gpu_available else None
                if own is None:
                    compute(op_input, op_output, context)
                    return
                ambient = self._ambient = gpu.use_stream(own.handle)
                self._emit_on_all(own)
                self.node.input.watch(self, own)
            assert self._own is not None
            if get_ident() != self._current_on:
                self._make_current(self._own.device_id)
            with ambient:
                compute(op_input, op_output, context)

        return compute_on_stream

    def order(self, port: str) -> None:
        """Order the operator's own stream after what it has just received."""
        assert self._own is not None
        self._ordered.add(port)
        order(self.received[port], self._own)

    def note_again(self, port: str, item: Any) -> None:
        """Take note of a second receive at a port in one compute."""
        earlier = self.received[port]
        self.received[port] = Batch([*(earlier if type(earlier) is Batch else [earlier]), item])

    def after_compute(self, node: Node) -> None:
        """Keep what a compute received until its streams have passed its end."""
        if self._checks:
            self._check("finished")
        received, self.received = self.received, {}
        streams = self._streams
        if not streams:
            if not (self._asked or self._checks):
                self._unwatch()
            return
        self.in_flight += 1
        if self._unmarked is None and len(streams) == 1:
            self._unmarked = received  # the next emit leaves a mark after it
        else:
            # Nothing was emitted since the compute before, or a mark on one stream says nothing of the others.
            self._mark_end(received)
        if self.in_flight > _EAGER:
            self._let_go()

    def forget(self) -> None:
        """Let go of everything; the streams are done."""
        self._unmarked = None
        self.received = {}
        while self._unfinished:
            self._unfinished.popleft().kept = None

    def _watch(self) -> None:
        self._watching = True
        self.node.input.watch(self)
        self.node.after = [*self.node.after, self.after_compute]
        if self._checks:
            self._mark_outputs()

    def _unwatch(self) -> None:
        """Leave an operator alone that has nothing to do with streams."""
        node = self.node
        self._watching = False
        node.input.watch(None)
        node.after = [hook for hook in node.after if hook != self.after_compute]
        node.special = bool(node.guarded or node.after or node.gathered)

    # What is kept, and the bound.

    @property
    def is_full(self) -> bool:
        """Whether there are as many unfinished computes as there may be."""
        if self.in_flight < self.limit:
            return False
        if self._unmarked is not None:
            self._mark_end(None)
        self._let_go()
        return self.in_flight >= self.limit

    def tell(self, announce: Callable[[], None]) -> None:
        """Call a function, from another thread, when the oldest unfinished compute may be done."""
        mark = self._unfinished[0]
        gpu.when_done(mark.stream.stream, lambda error, held=mark: announce(), event=mark.event)  # type: ignore[misc]

    def _mark_end(self, received: dict[str, Any] | None) -> None:
        """Mark all streams now; what was received so far is kept until they have passed that."""
        earlier, self._unmarked = self._unmarked, None
        kept = [part for part in (earlier, received) if part is not None]
        for managed in self._streams:
            mark = managed.mark()
            mark.kept = kept
            self._unfinished.append(mark)
        # Counted at the last one: they are let go of in this order.
        mark.computes = len(kept)

    def _let_go(self) -> None:
        """Drop what finished computes received; a mark that has been passed speaks for those before it.

        One look is enough where the device keeps up: at the last mark but one.
        """
        unfinished = self._unfinished
        count = len(unfinished)
        if len(self._streams) > 1:  # their marks are not passed in the order they stand in
            passed = next((n for n, mark in enumerate(unfinished) if not mark.event.is_done), count)
        elif count > 1 and unfinished[-2].event.is_done:
            passed = count - 1
        elif count > 3 and unfinished[count // 2].event.is_done:
            passed = count // 2 + 1
        else:
            passed = 1 if count and unfinished[0].event.is_done else 0
        for _ in range(passed):
            mark = unfinished.popleft()
            mark.kept = None  # a message may still hold the mark
            self.in_flight -= mark.computes

    # What compute asks for.

    def receive(self, port: str, allocate: bool, sync_to_default: bool) -> Any:
        """Order the operator's stream after what came in at a port, and give its handle."""
        item = self.received.get(port, _NOTHING)
        if item is _NOTHING:
            port = self._received_port(port, "receive_cuda_stream")
            item = self.received.get(port)
        own = self._own if self._prepared else self._prepare(port, allocate)
        if own is None:
            return DEFAULT_STREAM
        if get_ident() != self._current_on:
            self._make_current(own.device_id)
        order(item, own)
        if self._checks:
            self._ordered.add(port)
        if sync_to_default:
            self.run.default_stream(own.device_id).wait(own.mark().event)
        return own.handle

    def _prepare(self, port: str, allocate: bool) -> ManagedStream | None:
        """Find the operator a stream: of its pool, or one that it received, or none."""
        if not self.is_gpu_available:
            return None
        own = self._open() if allocate else self._own
        if own is None:
            own = self._borrow(port)
        if own is None:
            self._add(self.run.default_stream())  # whatever it launches, it launches there
            return None
        self._emit_on_all(own)
        self._prepared = self._opened
        return own

    def received_streams(self, port: str) -> list[Any]:
        """Give the stream of each message received at a port, None where it has none."""
        name = self._received_port(port, "receive_cuda_streams")
        self._ordered.add(name)  # the operator has taken the ordering into its own hands
        return [
            None if message is None or message.mark is None else message.mark.stream.handle
            for message in _messages(self.received.get(name))
        ]

    def allocate(self, name: str) -> Any:
        """Give the operator's stream of a name, made at the first call, or None if there is none to give."""
        found = self._named.get(name)
        if found is None:
            if name in self._named:
                return None
            found = self._named[name] = self._source().take() if self.is_gpu_available else None
            if found is None:
                return None
            self._add(found)
        if get_ident() != self._current_on:
            self._make_current(found.device_id)
        return found.handle

    def synchronize(self, streams: Iterable[Any], target: Any) -> None:
        """Order a stream after others."""
        if target is None:
            raise StreamError(f"operator {self.node.name!r}: synchronize_streams needs a target stream")
        later = self.run.stream_of(target)
        for stream in streams:
            if stream is not None and int(stream) != int(target):
                later.wait(self.run.stream_of(stream))

    def device_of(self, stream: Any) -> int:
        """Give the number of the device of a managed stream."""
        return self._managed(stream, "device_from_stream").device_id

    def set_output(self, stream: Any, port: str) -> None:
        """Emit a stream with what is sent from a port."""
        outputs = self.node.output_queues
        name = port or (next(iter(outputs)) if len(outputs) == 1 else "")
        if name not in outputs:
            raise PortError(f"operator {self.node.name!r} has no output {port!r}; it has {choices(outputs)}")
        managed = self._managed(stream, "set_cuda_stream")
        if self._outputs.get(name) is not managed:
            self._outputs[name] = managed
            self._mark_outputs()

    # Inside.

    def _open(self) -> ManagedStream | None:
        """Give the operator's own stream, from its pool at the first call; None if there is none to give."""
        if not self._opened:
            self._opened = True
            self._own = self._source().take()
            if self._own is not None:
                self._add(self._own)
        return self._own

    def _borrow(self, port: str) -> ManagedStream | None:
        """Make the first stream found at a port the operator's own, for want of another."""
        for message in _messages(self.received.get(port)):
            if message is not None and message.mark is not None:
                self._own = message.mark.stream
                self._add(self._own)
                return self._own
        return None

    def _make_current(self, device_id: int) -> None:
        """Make a device current on this thread; where there are several, every time, since others may change it."""
        if self.run.make_current(device_id):
            self._current_on = get_ident()

    def _source(self) -> StreamSource:
        source = source_of(self.node.operator)
        return self.run.default_source() if source is None else self.run.use(source)

    def _add(self, managed: ManagedStream) -> None:
        if managed in self._streams:
            return
        self._streams.append(managed)
        self.run.manage(managed)
        self.node.gate = self
        if not self._watching:
            self.node.special = True
            self.received[""] = _variables_of_compute()
            self._watch()

    def _emit_on_all(self, own: ManagedStream) -> None:
        for port in self.node.output_queues:
            self._outputs.setdefault(port, own)
        self._mark_outputs()

    def _mark_outputs(self) -> None:
        """Have what is emitted carry a mark of its port's stream."""
        marks = self.node.output.marks
        for port in self.node.output_queues:
            managed = self._outputs.get(port)
            if managed is not None or self._checks:
                marks[port] = self._marking(port, managed)
        streams = self.node.output.streams
        streams.update(self._outputs)
        if len(self.node.output_queues) == 1:
            (port,) = self.node.output_queues
            if port in marks:
                marks[""] = marks[port]
            if port in streams:
                streams[""] = streams[port]

    def _marking(self, port: str, managed: ManagedStream | None) -> Callable[[], Mark | None]:
        """Give what marks a port's stream at each emit."""
        if managed is None or self._checks:

            def mark_and_check() -> Mark | None:
                self._check(f"emitted on {port!r}")
                return None if managed is None else managed.mark()

            return mark_and_check
        spare, create, record = managed.spare, managed.create_event, managed.record

        def mark_emit() -> Mark:
            # What ManagedStream.mark does, without the call: this is in every step of every GPU operator.
            event = spare.pop() if spare else create()
            record(event)
            mark = Mark(managed, event, spare)
            unmarked = self._unmarked
            if unmarked is not None and self._streams[0] is managed:
                mark.kept, mark.computes = unmarked, 1  # it comes after the end of the compute before
                self._unmarked = None
                self._unfinished.append(mark)
            return mark

        return mark_emit

    def _received_port(self, port: str, caller: str) -> str:
        inputs = self.node.input_queues
        name = port or (next(iter(inputs)) if len(inputs) == 1 else "")
        if name not in inputs:
            raise PortError(f"operator {self.node.name!r} has no input {port!r}; it has {choices(inputs)}")
        self._asked = True
        if not self._watching:
            # Left alone since its first compute: of what it received, what came with a stream is known still.
            self.received = {port: Batch(notes) for port, notes in self.node.input.notes.items()}
        elif name not in self.received:
            raise StreamError(
                f"operator {self.node.name!r}: {caller}({name!r}) before receive({name!r}); receive first: the "
                "streams to be ordered after come with the messages"
            )
        return name

    def _managed(self, stream: Any, caller: str) -> ManagedStream:
        managed = self.run.find(stream)
        if managed is None:
            raise StreamError(
                f"operator {self.node.name!r}: {caller} takes a stream that penstock manages (from "
                f"receive_cuda_stream, receive_cuda_streams or allocate_cuda_stream), not {int(stream):#x}"
            )
        return managed

    def _check(self, did: str) -> None:
        """Report what was received and is still being worked on, and not ordered before what was done."""
        for port, item in self.received.items():
            if port in self._ordered:
                continue
            for message in _messages(item):
                mark = None if message is None else message.mark
                if mark is None or mark.stream in self._streams or mark.event.is_done:
                    continue
                self._ordered.add(port)  # said once
                warnings.warn(
                    f"operator {self.node.name!r} {did} without being ordered after the work behind what it "
                    f"received at {port!r}; call receive_cuda_stream({port!r}) after receive({port!r})",
                    UnorderedStreamWarning,
                    stacklevel=3,
                )
                break
        if did == "finished":
            self._ordered.clear()


def _variables_of_compute() -> list[dict[str, Any]]:
    """Give the variables of the program's functions that led here, up to the scheduler that called them."""
    found: list[dict[str, Any]] = []
    frame = sys._getframe(1)
    while frame is not None:
        ours = frame.f_globals.get("__name__", "").startswith(("penstock.runtime", "penstock.schedulers"))
        if not ours:
            found.append(dict(frame.f_locals))
        elif found:
            break
        frame = frame.f_back  # type: ignore[assignment]
    return found


def _messages(item: Any) -> Iterator[Message | None]:
    """Give the messages in what was received at a port, None for each that was only an object."""
    for part in item if type(item) is Batch else (item,):
        yield part if type(part) is Message else None


def order(item: Any, own: ManagedStream) -> None:
    """Have a stream wait for the work behind what was received, except its own."""
    if type(item) is Message:
        mark = item.mark
        if mark is not None:
            mark.followers += (own,)
            if mark.stream is not own:
                own.wait(mark.event)
    elif type(item) is Batch:
        for part in item:
            order(part, own)


class _DefaultStreamHandle(gpu.StreamHandle):
    """The default stream: what is given to an operator that has no stream and received none.

    It is made before a device is chosen, so it finds the stream behind it when that is asked for.
    """

    def __new__(cls) -> _DefaultStreamHandle:
        return int.__new__(cls, 0)

    @property
    def stream(self) -> Any:
        return gpu.LEGACY_DEFAULT_STREAM

    @property
    def is_simulated(self) -> bool:  # type: ignore[override]
        return gpu.backend() == "sim"

    def cupy(self) -> Any:
        import cupy

        return cupy.cuda.Stream.null

    def torch(self) -> Any:
        import torch

        return torch.cuda.default_stream()

    def numba(self) -> Any:
        from numba import cuda

        return cuda.default_stream()

    def cvcuda(self) -> Any:
        import cvcuda

        return cvcuda.Stream.default

    def __repr__(self) -> str:
        return "StreamHandle(default)"


DEFAULT_STREAM = _DefaultStreamHandle()


def _gpu_is_in_sight(operator: Operator) -> bool:
    """Whether a function may be meant for the GPU: a library for it is there, or it was given streams."""
    return source_of(operator) is not None or gpu.library_is_in_use()
