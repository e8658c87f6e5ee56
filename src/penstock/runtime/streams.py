"""NodeStreams: an operator's streams in a run, the order between them, and what must stay alive.

Most operators never touch a stream, and cost nothing here. What an operator that does costs, for each
compute: a mark (one event record) at each `emit` and a wait for each message that comes from another stream;
on the device, never waited for by the host.

**Lifetimes.** CuPy and PyTorch give a freed block out again at once to the stream it was allocated on. They
cannot know that another stream still reads it. So what an operator received is kept until its streams have
passed a mark that comes after the end of its compute: the one that the next `emit` leaves anyway, or, for an
operator that emits nothing, one that is left for the purpose after every other compute (`Trail`). Marks are
looked at when the operator runs, every few computes: asking whether an event is done costs less than being told.

**How far the host runs ahead.** An operator with so many unfinished computes (`Operator.max_in_flight`) is
not ready until the oldest is done; then, and only then, it asks to be told.

What an operator received before it first asked for a stream must be kept too. So the first compute of every
operator is watched; if it asks for no stream, it is not watched any more. For one that asks later, after all,
what its compute has in its variables at that moment is kept, this once: before it had a stream, nothing it
had let go of could be read on one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock.core.errors import PortError, StreamError, UnorderedStreamWarning, choices
from penstock.runtime.batch import Batch
from penstock.runtime.default_stream import DEFAULT_STREAM, default_handle
from penstock.runtime.inlet import NOTHING, Inlet
from penstock.runtime.managed_stream import ManagedStream
from penstock.runtime.message import Message
from penstock.runtime.run_streams import source_of
from penstock.runtime.trail import Trail
from penstock.runtime.variables import variables_of_compute

if TYPE_CHECKING:
    from penstock.core.operator import Operator
    from penstock.runtime.node import Node
    from penstock.runtime.run_streams import RunStreams
    from penstock.runtime.stream_source import StreamLease

__all__ = ["NodeStreams"]


class NodeStreams:
    """The streams of one operator in a run."""

    __slots__ = (
        "_ambient",
        "_asked",
        "_checks",
        "_compute",
        "_current_on",
        "_inlets",
        "_late",
        "_limit",
        "_named",
        "_opened",
        "_ordered",
        "_outputs",
        "_own",
        "_prepared",
        "_readers",
        "_trails",
        "_watching",
        "full",
        "node",
        "run",
    )

    def __init__(self, run: RunStreams, node: Node) -> None:
        self.run = run
        self.node = node
        self._checks = run.checks
        self._compute: Callable[..., None] = node.operator.compute
        self._current_on = -1  # the thread on which its device is known to be current
        # The operator's marks, on every stream that it uses or emits.
        self._trails: dict[ManagedStream, Trail] = {}
        # Those on the streams whose work may read what the operator receives.
        self._readers: list[Trail] = []
        self._own: ManagedStream | None = None
        self._opened = False  # whether the pool has been asked for the own stream
        self._prepared = False  # whether receive_cuda_stream has nothing left to find out
        self._asked = False  # whether the operator has asked anything about streams
        self._named: dict[str, ManagedStream | None] = {}
        self._outputs: dict[str, ManagedStream] = {}
        self._ambient: gpu.use_stream | None = None
        # What notes what a compute receives.
        self._inlets = node.input.inlets
        # The variables of a compute that asked for its first stream after it had been left alone.
        self._late: Any = None
        # For the checker: the ports where this compute is ordered after what it received.
        self._ordered: set[str] = set()
        limit = node.operator.max_in_flight
        self._limit = run.fragment.max_in_flight if limit is None else limit
        if self._limit < 1:
            raise ValueError(f"operator {node.name!r}: max_in_flight must be at least 1, not {self._limit}")
        # Where there are as many unfinished computes as there may be; the engine holds the node back for it.
        self.full: Trail | None = None
        self._watching = False
        self._watch()

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device."""
        return self.run.has_device

    # The compute, from outside.

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Give the compute to run, and what is done here before and after it."""
        operator = self.node.operator
        is_ambient = operator.spec.is_ambient or (operator.is_function and _gpu_is_in_sight(operator))
        if is_ambient:
            self._compute = self._on_stream(compute)
        elif source_of(operator) is not None and self.is_gpu_available and self.run.several_devices:
            self._compute = self._on_device(compute)
        else:
            self._compute = compute
        return self._compute_and_keep if self._watching else self._compute

    def _on_device(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Give a compute that begins with the operator's device current, whatever ran on the thread before."""
        device_id = self.run.device_of(self.node.operator)

        def compute_on_device(op_input: Any, op_output: Any, context: Any) -> None:
            self.run.make_current(device_id)
            compute(op_input, op_output, context)

        return compute_on_device

    def _on_stream(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Give a compute that has the operator's stream for the current one."""

        def compute_on_stream(op_input: Any, op_output: Any, context: Any) -> None:
            ambient = self._ambient
            if ambient is None:
                if not self.is_gpu_available:
                    compute(op_input, op_output, context)
                    return
                own = self._open()
                if own is None:
                    # Then its plain code runs on the default stream, which is ordered like any other.
                    own = self._own = self.run.default_stream(self._source().dev_id)
                    self._add(own)
                    ambient = gpu.use_stream(default_handle(own.device_id))
                else:
                    ambient = gpu.use_stream(own.handle)
                self._ambient = ambient
                self._emit_on_all(own)
                self.node.input.watch(self, own)
            assert self._own is not None
            if get_ident() != self._current_on:
                self._make_current(self._own.device_id)
            with ambient:
                compute(op_input, op_output, context)

        return compute_on_stream

    def order(self, inlet: Inlet) -> None:
        """Order the operator's own stream after what it has just received."""
        assert self._own is not None
        self._ordered.add(inlet.name)
        order(inlet.item, self._own)

    def _compute_and_keep(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Run a compute, and keep what it received until its streams have passed its end."""
        inlets = self._inlets
        if self._late is not None:  # noted in the last compute, which nobody was there to see the end of
            self._late = [self._late, [inlet.item for inlet in inlets]]
            for inlet in inlets:
                inlet.item = NOTHING
        self._compute(op_input, op_output, context)
        if self._checks:
            self._check("finished")
        received: Any = None
        if len(inlets) == 1:
            (inlet,) = inlets
            received, inlet.item = inlet.item, NOTHING
        elif inlets:
            received = [inlet.item for inlet in inlets]
            for inlet in inlets:
                inlet.item = NOTHING
        if self._late is not None:
            received, self._late = [received, self._late], None
        for trail in self._readers:
            if trail.keep(received) >= trail.look_at:
                self._look(trail)
        if not (self._readers or self._asked or self._checks):
            self._unwatch()

    def received(self) -> list[Any]:
        """Return what this compute received, input by input, for `receive_again`."""
        return [inlet.item for inlet in self._inlets] if self._watching else []

    def receive_again(self, items: list[Any]) -> None:
        """Have this compute keep what an earlier one received, which goes on with it.

        The operator's stream is ordered after it already.
        """
        if self._watching:
            for inlet, item in zip(self._inlets, items, strict=False):
                inlet.item = item
                self._ordered.add(inlet.name)

    def finish(self) -> None:
        """Wait until the operator's streams are done with all that was submitted; what is kept stays."""
        for managed in list(self._trails):
            self.run.make_current(managed.device_id)
            managed.stream.sync()

    def forget(self) -> None:
        """Let go of everything; the streams are done."""
        self._late = None
        for inlet in self._inlets:
            inlet.item = NOTHING
        for trail in self._trails.values():
            trail.forget()

    def _watch(self) -> None:
        self._watching = True
        self.node.input.watch(self)
        self.node.compute = self._compute_and_keep
        if self._checks:
            self._mark_outputs()

    def _watch_late(self) -> None:
        """Watch an operator again, in the middle of a compute, that has been left alone since its first."""
        self._late = variables_of_compute()
        # Of what it received, what came with a stream is known still.
        for inlet in self._inlets:
            inlet.item = Batch(self.node.input.notes.get(inlet.name, ()))
        self._watch()

    def _unwatch(self) -> None:
        """Leave an operator alone that has nothing to do with streams."""
        self._watching = False
        self.node.input.watch(None)
        self.node.compute = self._compute

    # The bound.

    def is_still_full(self) -> bool:
        """Look again whether there are as many unfinished computes as there may be."""
        self.full = None
        for trail in self._readers:
            if trail.is_full:
                self._look(trail)
        return any(trail.is_full for trail in self._readers)

    def tell(self, announce: Callable[[], None]) -> None:
        """Call a function, from another thread, when the oldest unfinished compute may be done."""
        assert self.full is not None
        gpu.when_done(self.full.stream.stream, lambda error: announce(), event=self.full.oldest())

    def _look(self, trail: Trail) -> None:
        trail.look()
        if trail.is_full:
            self.full = trail
            self.node.special = True  # for the engine to see

    # What compute asks for.

    def receive(self, inlet: Inlet, allocate: bool, sync_to_default: bool) -> Any:
        """Order the operator's stream after what came in at a port, and give its handle."""
        own = self._own
        if not self._prepared or inlet.item is NOTHING:
            self._must_have_received(inlet, "receive_cuda_stream")
            own = self._prepare(inlet, allocate)
        if own is None:
            return self._default_stream()
        if get_ident() != self._current_on:
            self._make_current(own.device_id)
        item = inlet.item
        if type(item) is Message:  # as `order`, without the call
            trail = item.trail
            if trail is not None and trail.stream is not own and item.number > trail.passed:
                own.wait(item.event)
            if item.emitted is not None:
                item.emitted.follow(own)
        else:
            order(item, own)
        if self._checks:
            self._ordered.add(inlet.name)
        if sync_to_default:
            self.run.default_stream(own.device_id).wait(self._trail(own).mark())
        return own.handle

    def _prepare(self, inlet: Inlet, allocate: bool) -> ManagedStream | None:
        """Find the operator a stream: of its pool, or one that it received, or none."""
        if not self.is_gpu_available:
            return None
        own = self._open() if allocate else self._own
        if own is None:
            own = self._borrow(inlet)
        if own is None:
            device_id = self.run.device_of(self.node.operator)
            self._add(self.run.default_stream(device_id))  # whatever it launches, it launches there
            return None
        self._emit_on_all(own)
        self._prepared = self._opened
        return own

    def _default_stream(self) -> Any:
        """Give the default stream of the operator's device, which is made current; it means no other then."""
        if not self.is_gpu_available:
            return DEFAULT_STREAM
        device_id = self.run.device_of(self.node.operator)
        if get_ident() != self._current_on:
            self._make_current(device_id)
        return default_handle(device_id)

    def received_streams(self, inlet: Inlet) -> list[Any]:
        """Give the stream of each message received at a port, None where it has none."""
        self._must_have_received(inlet, "receive_cuda_streams")
        self._ordered.add(inlet.name)  # the operator has taken the ordering into its own hands
        streams = [
            None if message is None or message.trail is None else message.trail.stream
            for message in _messages(inlet.item)
        ]
        for managed in streams:
            if managed is not None:
                self._add(managed)  # it may launch what reads its input there
        return [None if managed is None else managed.handle for managed in streams]

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
            if stream is not None:
                earlier = self.run.stream_of(stream)
                if (earlier.device_id, earlier.handle) != (later.device_id, later.handle):
                    later.wait(earlier.now())

    def device_of(self, stream: Any) -> int:
        """Give the number of the device of a managed stream."""
        return self._managed(stream, "device_from_stream").device_id

    def set_output(self, stream: Any, port: str) -> None:
        """Emit a stream with what is sent from a port."""
        current = self._outputs.get(port)
        if current is not None and current.handle is stream:
            return
        outputs = self.node.output_queues
        name = port or (next(iter(outputs)) if len(outputs) == 1 else "")
        if name not in outputs:
            raise PortError(f"operator {self.node.name!r} has no output {port!r}; it has {choices(outputs)}")
        if stream is DEFAULT_STREAM and not self.is_gpu_available:
            return  # what receive_cuda_stream gave, for want of any
        managed = self._managed(stream, "set_cuda_stream")
        if self._outputs.get(name) is not managed:
            self._outputs[name] = managed
            self._mark_outputs()

    # Inside.

    def _open(self) -> ManagedStream | None:
        """Give the operator's own stream, from its pool at the first call; None if there is none to give.

        It takes the place of one that was borrowed until then, also in what is emitted.
        """
        if not self._opened:
            self._opened = True
            own, borrowed = self._source().take(), self._own
            if own is not None:
                self._own = own
                self._add(own)
                for port, managed in self._outputs.items():
                    if managed is borrowed:
                        self._outputs[port] = own
        return self._own

    def _borrow(self, inlet: Inlet) -> ManagedStream | None:
        """Make the first stream found at a port the operator's own, for want of another."""
        for message in _messages(inlet.item):
            if message is not None and message.trail is not None:
                self._own = message.trail.stream
                self._add(self._own)
                return self._own
        return None

    def _make_current(self, device_id: int) -> None:
        """Make a device current on this thread; where there are several, every time, since others may change it."""
        if self.run.make_current(device_id):
            self._current_on = get_ident()

    def _source(self) -> StreamLease:
        source = source_of(self.node.operator)
        return self.run.default_source() if source is None else self.run.use(source)

    def _add(self, managed: ManagedStream) -> None:
        trail = self._trail(managed)
        if trail in self._readers:
            return
        self._readers.append(trail)
        self.run.manage(managed)
        self.node.gate = self
        if not self._watching:
            self._watch_late()

    def _emit_on_all(self, own: ManagedStream) -> None:
        for port in self.node.output_queues:
            self._outputs.setdefault(port, own)
        self._mark_outputs()

    def _mark_outputs(self) -> None:
        """Have what is emitted carry a mark of its port's stream."""
        for port in self.node.output_queues:
            managed = self._outputs.get(port)
            stamp = None if managed is None else self._trail(managed).message
            outlet = self.node.output.outlets[port]
            outlet.stream = managed
            outlet.stamp = self._checking(port, stamp) if self._checks else stamp

    def _checking(self, port: str, stamp: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        """Give what checks the order at each emit, then marks it."""

        def check_and_stamp(data: Any) -> Any:
            self._check(f"emitted on {port!r}")
            return data if stamp is None else stamp(data)

        return check_and_stamp

    def _trail(self, managed: ManagedStream) -> Trail:
        """Give the operator's marks on a stream."""
        if managed not in self._trails:
            self._trails[managed] = Trail(managed, self._limit)
        return self._trails[managed]

    def _must_have_received(self, inlet: Inlet, caller: str) -> None:
        self._asked = True
        if not self._watching:
            self._watch_late()
        elif inlet.item is NOTHING:
            raise StreamError(
                f"operator {self.node.name!r}: {caller}({inlet.name!r}) before receive({inlet.name!r}); receive "
                "first: the streams to be ordered after come with the messages"
            )

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
        for inlet in self._inlets:
            port = inlet.name
            if port in self._ordered:
                continue
            for message in _messages(inlet.item):
                if message is None or message.trail is None or message.is_done:
                    continue
                if any(message.trail.stream is trail.stream for trail in self._readers):
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


def _messages(item: Any) -> Iterator[Message | None]:
    """Give the messages in what was received at a port, None for each that was only an object."""
    for part in item if type(item) is Batch else (item,):
        yield part if type(part) is Message else None


def order(item: Any, own: ManagedStream) -> None:
    """Have a stream wait for the work behind what was received, except its own."""
    if type(item) is Message:
        trail = item.trail
        if trail is not None and trail.stream is not own and item.number > trail.passed:
            own.wait(item.event)
        if item.emitted is not None:
            item.emitted.follow(own)
    elif type(item) is Batch:
        for part in item:
            order(part, own)


def _gpu_is_in_sight(operator: Operator) -> bool:
    """Whether a function may be meant for the GPU: a library for it is there, or it was given streams."""
    return source_of(operator) is not None or gpu.library_is_in_use()
