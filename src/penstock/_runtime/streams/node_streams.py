"""NodeStreams: an operator's streams in a run, from what it receives to what it emits.

Most operators never see a stream, and cost nothing here. An operator that uses streams costs, for each compute, one
event record at each `emit` and one wait for each message that comes from another stream. Both happen on the device;
the host never waits.

The parts, each with a file of its own:

- `allocation`: which streams the operator has.
- `order`: the first time an operator asks for its stream at an input (`receive_cuda_stream`), the stream is ordered
  after what was received there. From then on that happens as each message is received. What was received and not
  ordered so is remembered, and whatever the operator emits comes after it.
- `outputs`: which stream each output emits.
- `lifetimes`: what was received stays alive until the streams have completed their work on it.
- `ambient`: the operator's stream as the current one of every library, where the operator works that way.
- `checker`: reports computes that used a stream without ordering it (`PENSTOCK_CHECK=streams`).

**Which operators are watched.** The first compute of every operator is. If it asked for no stream, and received
none with a message, the operator is not watched from then on, until it does either. When an operator asks for its
first stream later than in its first compute, everything that is in the variables of its compute and in its
attributes is kept, those of its class and its metadata included. Before it had a stream, nothing that it had let go
of could be read on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock._runtime.messages.batch import Batch
from penstock._runtime.messages.input import NOTHING, InputPort, messages_in
from penstock._runtime.messages.message import Message
from penstock._runtime.streams.allocation import StreamAllocation
from penstock._runtime.streams.ambient import AmbientStream
from penstock._runtime.streams.checker import StreamChecker
from penstock._runtime.streams.default_stream import DEFAULT_STREAM, default_handle
from penstock._runtime.streams.lifetimes import Lifetimes
from penstock._runtime.streams.managed_stream import ManagedStream
from penstock._runtime.streams.order import Order, note_ordered, wait_for
from penstock._runtime.streams.output_streams import OutputStreams
from penstock._runtime.streams.owners import add_owners
from penstock._runtime.streams.run_streams import source_of
from penstock._runtime.streams.variables import attributes_of_class, modules_of_compute, variables_of_compute
from penstock.core.errors import PortError, StreamError, choices

if TYPE_CHECKING:
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.run_streams import RunStreams
    from penstock.core.operator import Operator

__all__ = ["NodeStreams"]

_MANY = 100_000  # objects walked, once, where an operator asks for its first stream late


class NodeStreams:
    """The streams of one operator in a run.

    Everything here is changed in the operator's computes or between two of them, which never happens twice at once.
    """

    __slots__ = (
        "_asked",
        "_compute",
        "_is_late",
        "_is_undecided",
        "_ports",
        "_watching",
        "allocation",
        "ambient",
        "checker",
        "lifetimes",
        "node",
        "order",
        "outputs",
        "run",
    )

    def __init__(self, run: RunStreams, node: Node) -> None:
        self.run = run
        self.node = node
        self.allocation = StreamAllocation(run, node.operator)
        self.order = Order()
        self.lifetimes = Lifetimes(run, node)
        self.outputs = OutputStreams(node, self.allocation, self.order, self.lifetimes)
        self.checker = StreamChecker(node.name) if run.checks else None
        self.ambient: AmbientStream | None = None
        self._ports = node.input.ports
        self._compute: Callable[..., None] = node.operator.compute
        # Whether the operator has asked anything about streams.
        self._asked = False
        # Whether the operator's first compute has not shown yet that it uses a stream.
        self._is_undecided = True
        # Whether the last compute began without being watched, so that nobody saw its end.
        self._is_late = False
        self._watching = False
        self._watch()

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device."""
        return self.run.has_device

    # The compute, from outside.

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return the compute to run, with what is done here before and after it."""
        operator = self.node.operator
        if operator.spec.is_ambient or (operator.is_function and _may_use_gpu(operator)):
            self.ambient = AmbientStream(self)
            self._compute = self.ambient.around(compute)
        elif source_of(operator) is not None and self.is_gpu_available and self.run.several_devices:
            self._compute = self._on_device(compute)
        else:
            self._compute = compute
        return self._watched_compute if self._watching else self._compute

    def _on_device(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute that begins with the operator's device current, whatever ran on the thread before."""
        device_id = self.allocation.device_id

        def compute_on_device(op_input: Any, op_output: Any, context: Any) -> None:
            self.run.make_current(device_id)
            compute(op_input, op_output, context)

        return compute_on_device

    def _watched_compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Run a compute, and keep what it received until its streams have completed their work on it."""
        if self._is_late:
            self._is_late = False
            self._end_compute()
        try:
            self._compute(op_input, op_output, context)
            if self.checker is not None:
                self.checker.end_compute(self._ports)
        finally:
            # A copy of `_end_compute` and `Lifetimes.end_compute`, without the calls: this is in every step of
            # every operator that uses streams.
            for port in self._ports:
                port.item = NOTHING
            lifetimes = self.lifetimes
            keeper = lifetimes.keeper
            released = keeper.end_compute() if keeper.received or keeper.watched else None
            for reader in lifetimes.readers:
                if reader.add(released) >= reader.release_at:
                    lifetimes.release_completed(reader)
            if self._is_undecided:
                self._decide()

    def _end_compute(self) -> None:
        """Release the messages of a compute, and keep what is in them."""
        # `_watched_compute` has a copy.
        for port in self._ports:
            port.item = NOTHING
        self.lifetimes.end_compute()

    def items_received(self) -> list[Any]:
        """Return what this compute received, input by input, for `receive_again`."""
        return [port.item for port in self._ports] if self._watching else []

    def receive_again(self, items: list[Any]) -> None:
        """Treat this compute as one that received what an earlier compute received."""
        if self._watching:
            for port, item in zip(self._ports, items, strict=False):
                if item is not NOTHING:
                    port.item = item
                    self.received(port, item)

    def synchronize(self) -> None:
        """Wait until the operator's streams are done with all that was submitted; what is kept stays."""
        self.order.synchronize()

    def release(self) -> None:
        """Release what no stream reads any more: the streams are done. What the program holds is still watched."""
        self._is_late = False
        for port in self._ports:
            port.item = NOTHING
        self.order.close()
        self.lifetimes.clear()

    def close(self) -> None:
        """Release everything: there will be no more work."""
        self.release()
        self.lifetimes.keeper.clear()
        self.order.pending.clear()

    # Which operators are watched.

    def _watch(self) -> None:
        self._watching = True
        self.node.input.watch(self)
        self.node.compute = self._watched_compute

    def _watch_late(self) -> None:
        """Watch an operator again, in the middle of a compute, that has not been watched since its first."""
        self._is_late = True
        for port in self._ports:
            port.recall(self.node.remaining)
        self._watch()

    def _keep_late(self) -> None:
        """Keep what an operator has that asks for its first stream after its first compute."""
        keeper = self.lifetimes.keeper
        keeper.is_on = True
        operator = self.node.operator
        found: list[Any] = [variables_of_compute(), operator.__dict__, attributes_of_class(type(operator))]
        found += [modules_of_compute(), operator.metadata]
        for port in self._ports:
            found += [message.data for message in messages_in(port.item) if message is not None]
        add_owners(found, keeper.received, _MANY)

    def _decide(self) -> None:
        """Stop keeping what an operator receives that used no stream in its first compute.

        It is watched on for the order of what it receives, if that came with fences.
        """
        keeper = self.lifetimes.keeper
        keeper.is_on = False
        keeper.clear()
        self._is_undecided = False
        if not (self.order.has_received or self._asked or self.checker is not None):
            self._watching = False
            self.node.input.watch(None)
            self.node.compute = self._compute

    # What was received. `InputContext.receive` has a copy of `received` for a message with one fence.

    def received(self, port: InputPort, item: Any) -> None:
        """Order the operator's stream after what was received, and keep it alive."""
        keeper = self.lifetimes.keeper
        if type(item) is Batch:
            for part in item:
                self.received(port, part)
        elif type(item) is Message:
            if port.own is not None:
                wait_for(item, port.own)
            if port.is_noted:
                self.note(port, item)
            if keeper.is_on:
                add_owners(item.data, keeper.received)
                if item.details is not None:
                    add_owners(item.details.metadata, keeper.received)
        elif keeper.is_on:
            add_owners(item, keeper.received)

    def received_unwatched(self, port: InputPort, item: Any) -> None:
        """Watch an operator again if what it received has a fence."""
        if any(message is not None and message.has_fences for message in messages_in(item)):
            self._watch_late()
            port.item = item
            self.received(port, item)

    def note(self, port: InputPort, message: Message) -> None:
        """Remember the fences of a message, for what is emitted, and tell its tensors that a stream is ordered."""
        if not message.has_fences:
            return
        own = port.own
        if own is not None and self._is_ambient and message.work is not None:
            message.work.note_ordered(own)
        if own is None or not self.outputs.is_only:
            is_first = not self.order.has_received
            self.order.add_message(message, self.node.remaining)
            if is_first:
                self._update_outputs()

    # What compute asks for.

    def receive(self, port: InputPort, allocate: bool, sync_to_default: bool) -> Any:
        """Order the operator's stream after what came in at a port, and return its handle."""
        own = port.own
        item = port.item
        if own is None or item is NOTHING or sync_to_default or self.checker is not None:
            return self._receive(port, allocate, sync_to_default)
        # The stream was ordered as the messages were received.
        if get_ident() != self.allocation.current_on:
            self.allocation.make_current(own.device_id)
        if type(item) is Message:
            if item.work is not None:
                item.work.note_ordered(own)
        elif type(item) is Batch:
            note_ordered(item, own)
        if self.order.pending:
            self.order.settle(own, self.outputs.is_only)
        return own.handle

    def _receive(self, port: InputPort, allocate: bool, sync_to_default: bool) -> Any:
        """Order the operator's stream where that was not prepared, and return its handle."""
        self._must_have_received(port, "receive_cuda_stream")
        if not self.is_gpu_available:
            return DEFAULT_STREAM
        allocation = self.allocation
        own = allocation.open() if allocate else allocation.own
        if own is None:
            own = self._borrow(port)
        if own is None:
            return self._use_default_stream()
        self._use(own)
        if get_ident() != allocation.current_on:
            allocation.make_current(own.device_id)
        if own is allocation.own:
            self._emit_everywhere(own)
        note_ordered(port.item, own)
        self.order.settle(own, self.outputs.is_only)
        if own is allocation.own:
            self._order_each(port, own)
        if self.checker is not None:
            self.checker.uses_own_stream()
            self.checker.is_ordered(port.item)
        if sync_to_default:
            self._sync_to_default(own)
        return own.handle

    def _borrow(self, port: InputPort) -> ManagedStream | None:
        """Use the first stream found at a port for this compute and what it emits, for want of one's own."""
        allocation, turn = self.allocation, self.node.remaining
        if allocation.has_borrowed(turn):
            return allocation.borrowed
        for message in messages_in(port.item):
            if message is not None and message.fences is not None:
                allocation.borrow(message.fences.stream, turn)
                self._use(message.fences.stream)
                self._update_outputs()
                self._join_all()
                return message.fences.stream
        return None

    def _use_default_stream(self) -> Any:
        """Return the default stream of the operator's device, which is made current, and expect its work there."""
        allocation = self.allocation
        device_id = allocation.device_id
        self._use(self.run.default_stream(device_id))
        if allocation.borrowed is not None:
            self._join_all()
        if get_ident() != allocation.current_on:
            allocation.make_current(device_id)
        return default_handle(device_id)

    def _join_all(self) -> None:
        """Order what is emitted on a borrowed stream after the work on all streams that the operator used."""
        if len(self.lifetimes.readers) > 1:
            for reader in self.lifetimes.readers:
                self.order.join(reader.fences)

    def _sync_to_default(self, own: ManagedStream) -> None:
        """Order the default stream after the operator's, and what it emits after the default stream."""
        default = self.run.default_stream(own.device_id)
        default.wait(self.order.fences_on(own).insert())
        self._use(default)
        self.order.join(self.order.fences_on(default))
        self._update_outputs()

    def received_streams(self, port: InputPort) -> list[Any]:
        """Return the handle of the stream of each message received at a port, None where it has none."""
        self._must_have_received(port, "receive_cuda_streams")
        handles: list[Any] = []
        for message in messages_in(port.item):
            if message is None or message.fences is None:
                handles.append(None)
                continue
            managed = message.fences.stream
            self._use(managed)  # it may launch what reads its input there
            if message.more_fences is not None:
                wait_for(message, managed)  # one stream for each message: it stands for all its work
            handles.append(managed.handle)
        return handles

    def allocate(self, name: str) -> Any:
        """Return the operator's stream of a name, made at the first call, or None if there is none to give."""
        found = self.allocation.named(name)
        if found is None:
            return None
        self._use(found)
        if get_ident() != self.allocation.current_on:
            self.allocation.make_current(found.device_id)
        if self.checker is not None:
            self.checker.uses_own_stream()
        return found.handle

    def synchronize_streams(self, streams: Iterable[Any], target: Any) -> None:
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
            self.order.note_ordered(of_target, others)
        if self.checker is not None:
            self.checker.are_ordered(self._ports, others)

    def device_of(self, stream: Any) -> int:
        """Return the number of the device of a managed stream."""
        return self._managed(stream, "device_from_stream").device_id

    def set_output(self, stream: Any, port: str) -> None:
        """Emit a stream with what is sent from a port."""
        current = self.outputs.chosen(port)
        if current is not None and current.handle is stream:
            return
        queues = self.node.output_queues
        name = port or (next(iter(queues)) if len(queues) == 1 else "")
        if name not in queues:
            raise PortError(f"operator {self.node.name!r} has no output {port!r}; it has {choices(queues)}")
        if stream is DEFAULT_STREAM and not self.is_gpu_available:
            return  # what receive_cuda_stream returned, for want of any
        managed = self._managed(stream, "set_cuda_stream")
        if self.outputs.chosen(name) is not managed:
            self.outputs.choose(name, managed)
            self._update_outputs()

    def work_on(self, own: ManagedStream) -> None:
        """Run everything on the operator's own stream from now on: ordered after each message, and emitted."""
        self._use(own)
        self._emit_everywhere(own)
        for port in self._ports:
            self._order_each(port, own)

    # Inside.

    def _use(self, managed: ManagedStream) -> None:
        """Expect work of the operator on a stream: what it receives lives until that is done."""
        fences = self.order.fences_on(managed)
        lifetimes = self.lifetimes
        if lifetimes.is_read_on(fences):
            return
        if not self._watching:
            self._watch_late()
        if not lifetimes.keeper.is_on:
            self._keep_late()
        self._is_undecided = False
        lifetimes.add_reader(fences)
        self.run.manage(managed)
        self.node.lifetimes = lifetimes
        self._update_outputs()

    def _order_each(self, port: InputPort, own: ManagedStream) -> None:
        """From now on order the operator's own stream after each message as it is received."""
        port.own = own
        port.is_noted = self._is_noted(port)

    def _emit_everywhere(self, own: ManagedStream) -> None:
        self.outputs.choose_for_others(own)
        self._update_outputs()

    def _update_outputs(self) -> None:
        self.outputs.update()
        for port in self._ports:
            port.is_noted = self._is_noted(port)

    def _is_noted(self, port: InputPort) -> bool:
        return port.own is None or self._is_ambient or not self.outputs.is_only

    @property
    def _is_ambient(self) -> bool:
        return self.ambient is not None and self.ambient.is_open

    def _must_have_received(self, port: InputPort, caller: str) -> None:
        self._asked = True
        if not self._watching:
            self._watch_late()
        if port.item is NOTHING:
            port.recall(self.node.remaining)
        if port.item is NOTHING:
            raise StreamError(
                f"operator {self.node.name!r}: {caller}({port.name!r}) before receive({port.name!r}); receive "
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
        """Return a handle as it is; raise for anything else."""
        # In a variable of its own: narrowed to int, it would be a plain number in the compiled build.
        is_handle = isinstance(stream, int)
        if is_handle:
            return stream
        if stream is None:
            hint = "None, which allocate_cuda_stream returns where the pool has no stream left"
        else:
            hint = f"an object of type {type(stream).__name__!r}"
        raise StreamError(
            f"operator {self.node.name!r}: {caller} takes the handle of a stream (from receive_cuda_stream, "
            f"receive_cuda_streams or allocate_cuda_stream), not {hint}"
        )


def _may_use_gpu(operator: Operator) -> bool:
    """Return whether a function may be meant for the GPU: a library for it is loaded, or it was given streams."""
    return source_of(operator) is not None or gpu.library_is_in_use()
