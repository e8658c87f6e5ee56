"""NodeStreams: an operator's streams in a run: which it has, what they are ordered after, what lives for them.

Most operators never see a stream, and cost nothing here. What an operator that uses streams costs, for each
compute: a mark (one event record) at each `emit` and a wait for each message that comes from another stream; on
the device, never waited for by the host.

**Order.** A message carries the mark that was left on its stream when it was emitted. The first time an
operator asks for its stream at an input (`receive_cuda_stream`), the stream is ordered after what was received
there; from then on that happens as each message is received. What was received and not ordered so is remembered
(`Order`), and whatever the operator emits comes after it.

**Lifetimes.** What an operator received stays until it is let go and the operator's streams have passed a mark
that comes after that (`Keeper`): the mark that the next `emit` leaves anyway, or, for an operator that emits
nothing, one that is left for the purpose after every other compute (`Trail`). Marks are looked at when the
operator runs, every few computes: asking whether an event is done costs less than being told.

**How far the host runs ahead.** An operator with so many unfinished computes (`Operator.max_in_flight`) is not
ready until the oldest is done; then, and only then, it asks to be told.

**Who is watched.** The first compute of every operator is. One that asked for no stream and received none with
a message is left alone from then on, until it does either. For one that asks for its first stream then, what
its compute has in its variables and the operator in its attributes is kept, those of its class and its metadata
included: before it had a stream, nothing that it had let go of could be read on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock._runtime.messages.batch import Batch
from penstock._runtime.messages.input_port import NOTHING, Inlet, messages_in
from penstock._runtime.messages.message import Mark, Message
from penstock._runtime.streams.checker import StreamChecker
from penstock._runtime.streams.default_stream import DEFAULT_STREAM, default_handle, is_default
from penstock._runtime.streams.fences import Trail
from penstock._runtime.streams.keeper import Keeper
from penstock._runtime.streams.managed_stream import ManagedStream
from penstock._runtime.streams.order import Order
from penstock._runtime.streams.owners import add_owners
from penstock._runtime.streams.run_streams import source_of
from penstock._runtime.streams.variables import attributes_of_class, modules_of_compute, variables_of_compute
from penstock.core.errors import PortError, StreamError, choices

if TYPE_CHECKING:
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.run_streams import RunStreams
    from penstock._runtime.streams.stream_source import StreamLease
    from penstock.core.operator import Operator

__all__ = ["NodeStreams"]

_MANY = 100_000  # objects looked at, once, where an operator asks for its first stream late


class NodeStreams:
    """The streams of one operator in a run.

    Everything here is changed in the operator's computes or between two of them, which never happens twice at once.
    """

    __slots__ = (
        "_ambient",
        "_asked",
        "_borrowed",
        "_borrowed_in",
        "_checker",
        "_compute",
        "_current_on",
        "_has_met",
        "_inlets",
        "_is_late",
        "_is_only",
        "_is_used",
        "_limit",
        "_named",
        "_opened",
        "_order",
        "_outputs",
        "_own",
        "_readers",
        "_trails",
        "_watching",
        "full",
        "keeper",
        "keeps",
        "node",
        "run",
    )

    def __init__(self, run: RunStreams, node: Node) -> None:
        self.run = run
        self.node = node
        self._checker = StreamChecker(node.name) if run.checks else None
        self._compute: Callable[..., None] = node.operator.compute
        self._current_on = -1  # the thread on which its device is known to be current
        # The operator's marks, on every stream that it uses or emits.
        self._trails: dict[ManagedStream, Trail] = {}
        # Those on the streams whose work may read what the operator receives.
        self._readers: list[Trail] = []
        # The stream of its own, from its pool, and whether the pool has been asked for it.
        self._own: ManagedStream | None = None
        self._opened = False
        # The stream that a compute used in place of one of its own, and which compute that was.
        self._borrowed: ManagedStream | None = None
        self._borrowed_in: int | None = None
        self._asked = False  # whether the operator has asked anything about streams
        self._has_met = False  # whether it has received a message with a mark
        self._named: dict[str, ManagedStream | None] = {}
        # The streams that were chosen for outputs, and whether all of them are the operator's own.
        self._outputs: dict[str, ManagedStream] = {}
        self._is_only = False
        self._ambient: gpu.use_stream | None = None
        # What notes what a compute receives.
        self._inlets = node.input.inlets
        self._order = Order()
        self.keeper = Keeper(run.watch)
        # Whether what is received is kept: some stream may read it, or this is the first compute.
        self.keeps = True
        # False in the first compute, until it has a stream.
        self._is_used = False
        # Whether the last compute began without being watched, so that nobody saw its end.
        self._is_late = False
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
        """Return the compute to run, and what is done here before and after it."""
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
        """Return a compute that has the operator's stream for the current one."""

        def compute_on_stream(op_input: Any, op_output: Any, context: Any) -> None:
            ambient = self._ambient
            if ambient is None:
                if not self.is_gpu_available:
                    compute(op_input, op_output, context)
                    return
                ambient = self._open_ambient()
            assert self._own is not None
            if get_ident() != self._current_on:
                self._make_current(self._own.device_id)
            if self._checker is not None:
                self._checker.uses_own_stream()
            with ambient:
                compute(op_input, op_output, context)

        return compute_on_stream

    def _open_ambient(self) -> gpu.use_stream:
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
        for inlet in self._inlets:
            self._follow(inlet, own)
        return ambient

    def _compute_and_keep(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Run a compute, and keep what it received until its streams have passed its end."""
        if self._is_late:
            self._is_late = False
            self._end_compute()
        try:
            self._compute(op_input, op_output, context)
            if self._checker is not None:
                self._checker.end_compute(self._inlets)
        finally:
            # As `_end_compute`, without the call: this is in every step of every operator that uses streams.
            for inlet in self._inlets:
                inlet.item = NOTHING
            keeper = self.keeper
            let_go = keeper.end_compute() if keeper.received or keeper.watched else None
            for trail in self._readers:
                if trail.keep(let_go) >= trail.look_at:
                    self._look(trail)
            if not self._is_used:
                self._unwatch()

    def _end_compute(self) -> None:
        """Let go of the messages of a compute, and keep what is in them."""
        for inlet in self._inlets:
            inlet.item = NOTHING
        let_go = self.keeper.end_compute()
        for trail in self._readers:
            if trail.keep(let_go) >= trail.look_at:
                self._look(trail)

    def items_received(self) -> list[Any]:
        """Return what this compute received, input by input, for `receive_again`."""
        return [inlet.item for inlet in self._inlets] if self._watching else []

    def receive_again(self, items: list[Any]) -> None:
        """Have this compute be one that received what an earlier one received, which goes on with it."""
        if self._watching:
            for inlet, item in zip(self._inlets, items, strict=False):
                if item is not NOTHING:
                    inlet.item = item
                    self.received(inlet, item)

    def finish(self) -> None:
        """Wait until the operator's streams are done with all that was submitted; what is kept stays."""
        for managed in list(self._trails):
            with gpu.on_device(managed.device_id):
                managed.stream.sync()

    def settle(self) -> None:
        """Let go of what no stream reads any more: the streams are done. What the program holds is watched on."""
        self._is_late = False
        for inlet in self._inlets:
            inlet.item = NOTHING
        for trail in self._trails.values():
            trail.forget()

    def forget(self) -> None:
        """Let go of everything: there will be no more work."""
        self.settle()
        self.keeper.forget()
        self._order.pending.clear()

    def _watch(self) -> None:
        self._watching = True
        self.node.input.watch(self)
        self.node.compute = self._compute_and_keep

    def _watch_late(self) -> None:
        """Watch an operator again, in the middle of a compute, that has been left alone since its first."""
        self._is_late = True
        for inlet in self._inlets:
            inlet.recall(self.node.remaining)
        self._watch()

    def _keep_late(self) -> None:
        """Keep what an operator has that asks for its first stream after its first compute."""
        self.keeps = True
        operator = self.node.operator
        found: list[Any] = [variables_of_compute(), operator.__dict__, attributes_of_class(type(operator))]
        found += [modules_of_compute(), self.node.metadata]
        for inlet in self._inlets:
            found += [message.data for message in messages_in(inlet.item) if message is not None]
        add_owners(found, self.keeper.received, _MANY)

    def _unwatch(self) -> None:
        """Leave an operator alone that has not used a stream, but for the order of what it receives."""
        self.keeps = False
        self.keeper.forget()
        self._is_used = True
        if not (self._has_met or self._asked or self._checker is not None):
            self._watching = False
            self.node.input.watch(None)
            self.node.compute = self._compute

    # What was received.

    def note(self, inlet: Inlet, message: Message) -> None:
        """Remember the marks of a message that was received, for what is emitted, and tell its tensors."""
        if message.trail is None and message.also is None:
            return
        own = inlet.own
        if own is not None and self._ambient is not None and message.emitted is not None:
            message.emitted.follow(own)
        if own is None or not self._is_only:
            self._order.add_message(message, self.node.remaining)
            if not self._has_met:
                self._has_met = True
                self._mark_outputs()

    def meet(self, inlet: Inlet, item: Any) -> None:
        """Watch an operator that has been left alone until it received a message with a mark."""
        if any(message is not None and message.marks() for message in messages_in(item)):
            self._watch_late()
            inlet.item = item
            self.received(inlet, item)

    def received(self, inlet: Inlet, item: Any) -> None:
        """See to the order and the life of what was received, where it is not a simple message."""
        own = inlet.own
        if type(item) is Batch:
            for part in item:
                self.received(inlet, part)
        elif type(item) is Message:
            if own is not None:
                order(item, own)
            if inlet.is_noted:
                self.note(inlet, item)
            if self.keeps:
                add_owners(item.data, self.keeper.received)
                if item.details is not None:
                    add_owners(item.details.metadata, self.keeper.received)
        elif self.keeps:
            add_owners(item, self.keeper.received)

    def _follow(self, inlet: Inlet, own: ManagedStream) -> None:
        """From now on order the operator's own stream after each message as it is received."""
        inlet.own = own
        inlet.is_noted = self._ambient is not None or not self._is_only

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
        """Order the operator's stream after what came in at a port, and return its handle."""
        own = inlet.own
        item = inlet.item
        if own is None or item is NOTHING or sync_to_default or self._checker is not None:
            return self._receive(inlet, allocate, sync_to_default)
        if get_ident() != self._current_on:
            self._make_current(own.device_id)
        if type(item) is Message:
            if item.emitted is not None:
                item.emitted.follow(own)
        elif type(item) is Batch:
            follow(item, own)
        if self._order.pending:
            self._order.settle(own, self._is_only)
        return own.handle

    def _receive(self, inlet: Inlet, allocate: bool, sync_to_default: bool) -> Any:
        """Do the same where it was not prepared."""
        self._must_have_received(inlet, "receive_cuda_stream")
        if not self.is_gpu_available:
            return DEFAULT_STREAM
        own = self._open() if allocate else self._own
        if own is None:
            own = self._borrow(inlet)
        if own is None:
            device_id = self.run.device_of(self.node.operator)
            self._add(self.run.default_stream(device_id))  # whatever it launches, it launches there
            if self._borrowed is not None:
                self._join_all()
            return self._default_stream()
        if get_ident() != self._current_on:
            self._make_current(own.device_id)
        if own is self._own:
            self._emit_on_all(own)
        follow(inlet.item, own)
        self._order.settle(own, self._is_only)
        if own is self._own:
            self._follow(inlet, own)
        if self._checker is not None:
            self._checker.uses_own_stream()
            self._checker.is_ordered(inlet.item)
        if sync_to_default:
            self._sync_to_default(own)
        return own.handle

    def _sync_to_default(self, own: ManagedStream) -> None:
        """Order the default stream after the operator's, and what it emits after the default stream."""
        default = self.run.default_stream(own.device_id)
        default.wait(self._trail(own).mark())
        self._add(default)
        self._order.join(self._trail(default))
        self._mark_outputs()

    def _default_stream(self) -> Any:
        """Give the default stream of the operator's device, which is made current; it means no other then."""
        if not self.is_gpu_available:
            return DEFAULT_STREAM
        device_id = self.run.device_of(self.node.operator)
        if get_ident() != self._current_on:
            self._make_current(device_id)
        return default_handle(device_id)

    def received_streams(self, inlet: Inlet) -> list[Any]:
        """Return the stream of each message received at a port, None where it has none."""
        self._must_have_received(inlet, "receive_cuda_streams")
        streams: list[ManagedStream | None] = []
        for message in messages_in(inlet.item):
            managed = None if message is None or message.trail is None else message.trail.stream
            if managed is not None:
                assert message is not None
                self._add(managed)  # it may launch what reads its input there
                if message.also is not None:
                    order(message, managed)  # one stream for each message: it stands for all its work
            streams.append(managed)
        return [None if managed is None else managed.handle for managed in streams]

    def allocate(self, name: str) -> Any:
        """Return the operator's stream of a name, made at the first call, or None if there is none to give."""
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
        if self._checker is not None:
            self._checker.uses_own_stream()
        return found.handle

    def synchronize(self, streams: Iterable[Any], target: Any) -> None:
        """Order a stream after others."""
        if target is None:
            raise StreamError(f"operator {self.node.name!r}: synchronize_streams needs a target stream")
        later = self.run.stream_of(self._handle(target, "synchronize_streams"))
        others: list[ManagedStream] = []
        for stream in streams:
            if stream is None:
                continue
            earlier = self.run.stream_of(self._handle(stream, "synchronize_streams"))
            if (earlier.device_id, earlier.handle) != (later.device_id, later.handle):
                later.wait(earlier.now())
            managed = self.run.find(stream)
            if managed is not None:
                others.append(managed)
        of_target = self.run.find(target)
        if of_target is not None:
            self._order.is_ordered(of_target, others)
        if self._checker is not None:
            self._checker.are_ordered(self._inlets, others)

    def device_of(self, stream: Any) -> int:
        """Return the number of the device of a managed stream."""
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

    # What can be seen.

    @property
    def frames_in_flight(self) -> int:
        """How many frames are kept because a stream may still read them."""
        return max((trail.kept for trail in self._readers), default=0)

    # Inside.

    def _open(self) -> ManagedStream | None:
        """Return the operator's own stream, from its pool at the first call; None if there is none to give."""
        if not self._opened:
            self._opened = True
            own = self._source().take()
            if own is not None:
                self._own = own
                self._add(own)
        return self._own

    def _borrow(self, inlet: Inlet) -> ManagedStream | None:
        """Use the first stream found at a port for this compute and what it emits, for want of one's own."""
        turn = self.node.remaining
        if self._borrowed_in == turn:
            return self._borrowed
        for message in messages_in(inlet.item):
            if message is not None and message.trail is not None:
                self._borrowed, self._borrowed_in = message.trail.stream, turn
                self._add(self._borrowed)
                self._mark_outputs()
                self._join_all()
                return self._borrowed
        return None

    def _join_all(self) -> None:
        """Have what is emitted on a borrowed stream come after the work on all streams that the operator used."""
        if len(self._readers) > 1:
            for trail in self._readers:
                self._order.join(trail)

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
        if not self._watching:
            self._watch_late()
        if not self.keeps:
            self._keep_late()
        self._is_used = True
        self._readers.append(trail)
        self.run.manage(managed)
        self.node.gate = self
        self._mark_outputs()

    def _emit_on_all(self, own: ManagedStream) -> None:
        for port in self.node.output_queues:
            self._outputs.setdefault(port, own)
        self._mark_outputs()

    def _mark_outputs(self) -> None:
        """Have what is emitted carry a mark of its port's stream, or else of all that the operator did and had."""
        streams = {port: self._outputs.get(port) or self._borrowed for port in self.node.output_queues}
        self._set_only(self._own is not None and all(managed is self._own for managed in streams.values()))
        for port, managed in streams.items():
            outlet = self.node.output.outlets[port]
            outlet.stream = managed
            if managed is not None:
                outlet.stamp = self._trail(managed).message
                outlet.pending = self._order.pending
                outlet.settle = self._settling(managed)
            else:
                outlet.stamp = self._carry if self._has_met or self._readers else None
                outlet.pending = {}

    def _set_only(self, is_only: bool) -> None:
        """Say whether all that is emitted is ordered by the operator's own stream."""
        if self._is_only and not is_only:
            # Another stream is to be emitted: what the own one is ordered after, the other must be, too.
            assert self._own is not None
            trail = self._trail(self._own)
            event = trail.mark()
            self._order.add(trail, trail.marked, event)
        self._is_only = is_only
        for inlet in self._inlets:
            inlet.is_noted = inlet.own is None or self._ambient is not None or not is_only

    def _settling(self, managed: ManagedStream) -> Callable[[], None]:
        """Return what orders a stream after all that was received, before it is emitted."""

        def settle() -> None:
            self._order.settle(managed, self._is_only)

        return settle

    def _carry(self, data: Any) -> Any:
        """Return a message that carries what the operator did on its streams and had not been ordered after."""
        marks: list[Mark] = []
        default: list[Mark] = []
        for trail in self._readers:
            event = trail.mark()
            (default if is_default(trail.stream.handle) else marks).append((trail, trail.marked, event))
        if not marks:
            # The stream that came last stands for it, as if it had been sent straight from there.
            received = self._order.marks(self.node.remaining)
            if received:
                marks.append(received.pop())
            marks += received
        else:
            marks += self._order.marks(self.node.remaining)
        if not (marks or default):
            return data
        message = Message()
        message.data = data
        message.emitted = message.details = None
        if marks:
            message.trail, message.number, message.event = marks[0]
        else:
            message.trail = message.event = None
            message.number = 0
        also = (*marks[1:], *default)
        message.also = also or None
        return message

    def _trail(self, managed: ManagedStream) -> Trail:
        """Return the operator's marks on a stream."""
        if managed not in self._trails:
            self._trails[managed] = Trail(managed, self._limit)
        return self._trails[managed]

    def _must_have_received(self, inlet: Inlet, caller: str) -> None:
        self._asked = True
        if not self._watching:
            self._watch_late()
        if inlet.item is NOTHING:
            inlet.recall(self.node.remaining)
        if inlet.item is NOTHING:
            raise StreamError(
                f"operator {self.node.name!r}: {caller}({inlet.name!r}) before receive({inlet.name!r}); receive "
                "first: the streams to be ordered after come with the messages"
            )

    def _managed(self, stream: Any, caller: str) -> ManagedStream:
        managed = self.run.find(self._handle(stream, caller))
        if managed is None:
            raise StreamError(
                f"operator {self.node.name!r}: {caller} takes a stream that penstock manages (from "
                f"receive_cuda_stream, receive_cuda_streams or allocate_cuda_stream), not {int(stream):#x}"
            )
        return managed

    def _handle(self, stream: Any, caller: str) -> Any:
        """Return a handle as it is; raise for what is none."""
        # In a variable of its own: narrowed to int, it would be a plain number in the compiled build.
        is_handle = isinstance(stream, int)
        if is_handle:
            return stream
        if stream is None:
            hint = "None, which allocate_cuda_stream gives where the pool has no stream left"
        else:
            hint = f"an object of type {type(stream).__name__!r}"
        raise StreamError(
            f"operator {self.node.name!r}: {caller} takes the handle of a stream (from receive_cuda_stream, "
            f"receive_cuda_streams or allocate_cuda_stream), not {hint}"
        )


def order(item: Any, own: ManagedStream) -> None:
    """Have a stream wait for the work behind what was received, except its own."""
    for message in messages_in(item):
        if message is not None:
            for trail, number, event in message.marks():
                if trail.stream is not own and number > trail.passed:
                    own.wait(event)


def follow(item: Any, own: ManagedStream) -> None:
    """Tell the tensors in what was received that a stream has been ordered after their work."""
    for message in messages_in(item):
        if message is not None and message.emitted is not None:
            message.emitted.follow(own)


def _gpu_is_in_sight(operator: Operator) -> bool:
    """Whether a function may be meant for the GPU: a library for it is there, or it was given streams."""
    return source_of(operator) is not None or gpu.library_is_in_use()
