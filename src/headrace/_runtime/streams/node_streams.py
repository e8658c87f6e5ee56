"""NodeStreams: an operator's streams in a run, from receive to emit.

Most operators use no stream, and cost nothing here. For an operator that uses streams, each `emit` costs one event
record, and each message from another stream costs one wait. Both happen on the device; the host never waits.

The parts, each in its own file:

- `allocation`: which streams the operator has.
- `order`: the first call of `receive_cuda_stream` for an input orders the operator's stream after the messages
  received there. From then on, each message is ordered as it is received. Work that was received and not ordered is
  recorded, and everything that the operator emits is ordered after it.
- `outputs`: which stream the messages of each output carry.
- `lifetimes`: received frames stay alive until the streams have completed their work on them.
- `placement`: where plain code runs, which names no stream: usually on the operator's own stream.
- `knobs`: the scalars on the device that the operator asked for, and when they change.
- `checker`: reports computes that used a stream without ordering it (`HEADRACE_CHECK=streams`).

**Which operators are watched** (`watch_state`). When an operator requests its first stream after its first compute,
all objects in the variables of its compute and in its attributes are kept, including the attributes of its class
and its metadata. Frames that it had released before need not be kept, because it had no stream that could read
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.envelope import Envelope
from headrace._runtime.messages.managed_stream import ManagedStream, is_default
from headrace._runtime.messages.ports import (
    NOTHING,
    InputPort,
    has_other_receivers,
    messages_in,
    no_such_port,
    parts_of,
)
from headrace._runtime.messages.queue import Batch
from headrace._runtime.streams.allocation import StreamAllocation
from headrace._runtime.streams.branch import Member
from headrace._runtime.streams.checker import StreamChecker
from headrace._runtime.streams.default_stream import DEFAULT_STREAM, default_handle
from headrace._runtime.streams.in_order import InOrder, Step
from headrace._runtime.streams.lifetimes import Lifetimes
from headrace._runtime.streams.order import Order, note_ordered, wait_for
from headrace._runtime.streams.output_streams import OutputStreams
from headrace._runtime.streams.owners import add_memory, add_owners
from headrace._runtime.streams.placement import Placement, objects_named_in
from headrace._runtime.streams.run_streams import source_of
from headrace._runtime.streams.steady_compute import steady_compute
from headrace._runtime.streams.variables import (
    attributes_of_class,
    modules_of,
    modules_of_compute,
    variables_beside,
    variables_of_compute,
)
from headrace._runtime.streams.watch import owners_in
from headrace._runtime.streams.watch_state import WatchState
from headrace.core.errors import StreamError
from headrace.gpu.allocation import in_use
from headrace.gpu.ambient import leave, thread
from headrace.gpu.lasting_stream import LastingStream
from headrace.tensor.libraries import is_reused_in_order

if TYPE_CHECKING:
    from headrace._runtime.messages.emitted_work import EmittedWork
    from headrace._runtime.streams.knobs import Knobs
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace._runtime.streams.running_operator import RunningOperator

_MANY = 100_000  # objects walked, once, when an operator requests its first stream late
_TRIES = 100  # to walk what other threads change meanwhile
_FIRST, _OFF, _LATE, _ON = WatchState.FIRST, WatchState.OFF, WatchState.LATE, WatchState.ON


class NodeStreams:
    """The streams of one operator in a run.

    All fields are changed in the operator's computes or between two computes, and never concurrently.
    """

    __slots__ = (
        *(
            "_compute",
            "_current",
            "_in_order",
            "_member",
            "_placement",
            "_ports",
            "_receives_others",
            "_state",
            "_steady",
            "_step",
            "allocation",
            "checker",
            "first_values",
            "is_unusual",
        ),
        *("given", "knobs", "lifetimes", "node", "order", "outputs", "run"),
    )

    def __init__(self, run: RunStreams, node: RunningOperator) -> None:
        self.run = run
        self.node = node
        self.allocation = StreamAllocation(run, node.operator)
        self.order = Order()
        self.lifetimes = Lifetimes(run, node)
        self.outputs = OutputStreams(run, node, self.allocation, self.order, self.lifetimes)
        self.checker = StreamChecker(node.name) if run.checks else None
        # Whether `receive_cuda_stream` has more to do than to order the stream.
        self.is_unusual = run.checks
        self._placement: Placement | None = None
        self._steady: Callable[..., None] | None = None
        # The stream of plain code, from the first compute on; None if the operator is left alone.
        self._current: LastingStream | None = None
        # If it shares a stream with its neighbours until streams of their own pay.
        self._member: Member | None = None
        # If it keeps nothing of what it receives; never, if it may have received memory that is not used again in
        # the order of the shared stream.
        self._in_order: InOrder | None = None
        self._receives_others = False
        self._step = Step()
        # The handles of the named streams that the operator uses, for a thread on which their device is current.
        self.given: dict[str, Any] = {}
        self.knobs: Knobs | None = None
        self._ports = node.input.ports
        self._compute: Callable[..., None] = node.operator.compute
        # During the first compute, the attributes of the operator and its given knobs when it began.
        self.first_values: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._state = _OFF
        self._enter(_FIRST)

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device."""
        return self.run.has_device

    # The compute, from outside.

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return the compute to run, wrapped with the work before and after it."""
        run, operator = self.run, self.node.operator
        placement = run.placements.get(operator)
        if placement is not None and placement is not Placement.LEFT_ALONE:
            self._placement = placement
        elif run.placements:
            compute = _off_stream(compute)
        if (
            self._placement is None
            and source_of(operator) is not None
            and run.has_device
            and run.several_devices
        ):
            compute = self._on_device(compute)
        if (self._placement is not None or source_of(operator) is not None) and run.brings:
            from headrace._runtime.streams.other_devices import OtherDevices

            others = OtherDevices(self)
            for port in self._ports:
                port.bring(others.bring)
        self._compute = compute
        self._note_feeders()
        return self._compute if self._state is _OFF else self._watched_compute

    def _on_device(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute that begins with the operator's device current."""
        device_id = self.allocation.device_id

        def compute_on_device(op_input: Any, op_output: Any, context: Any) -> None:
            self.run.make_current(device_id)
            compute(op_input, op_output, context)

        return compute_on_device

    def _watched_compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Run a compute, and keep its received frames until its streams have completed their work on them."""
        if self._state is not _ON:
            self._begin_unusual()
        try:
            current = self._current
            if current is not None:
                if get_ident() != self.allocation.current_on:
                    self.allocation.make_own_current()
                current.enter(thread.current)
            self._compute(op_input, op_output, context)
            if self.checker is not None:
                self.checker.end_compute(self._ports)
        finally:
            for port in self._ports:
                port.item = NOTHING
            if self.first_values is None:
                self.lifetimes.note_compute()
            else:
                self.lifetimes.end_compute()
                self.first_values = None
                if self._state is not _ON:
                    self._decide()
            is_usual = self.checker is None and len(self.lifetimes.readers) == 1
            # Something may have been put around the compute meanwhile.
            if self._state is _ON and is_usual and self.node.compute == self._watched_compute:
                self._go_steady()

    def _go_steady(self) -> None:
        """Go the short way in the next compute."""
        member = self._member
        steady = steady_compute(
            self.node,
            self._compute,
            self._current,
            self.allocation,
            self.lifetimes,
            self.run.observer,
            None if self._in_order is None else (self._step, self._end_step),
        )
        if member is not None and member.probes:
            fences = self.lifetimes.readers[0].fences
            steady = member.probing(steady, fences, self.allocation.make_own_current)
        self._steady = self.node.compute = steady

    def _end_steady(self) -> None:
        """Go the general way in the next compute, because the streams of the operator or its compute changed."""
        if self._is_steady():
            self.node.compute = self._watched_compute
        self._steady = None
        self._keep_all()

    def _is_steady(self) -> bool:
        """Return whether the next compute goes the short way."""
        return self._steady is not None and self.node.compute is self._steady

    def _begin_unusual(self) -> None:
        """Begin the first compute, or the first that is watched again."""
        if self._state is _LATE:
            self._forget_items()
            self.lifetimes.end_compute()  # of the compute before
            self._enter(_ON)
        else:
            # For knobs that this first compute asks for: their values are those from its beginning.
            operator = self.node.operator
            self.first_values = (dict(vars(operator)), dict(operator._headrace.knobs.given))
            if self._placement is not None:
                self._place()

    def _place(self) -> None:
        """Take the stream of plain code; if the pool has none left, that is the default stream."""
        allocation = self.allocation
        own = allocation.open_or_default() if self._placement is Placement.OWN else allocation.open_default()
        handle: Any = default_handle(own.device_id) if is_default(own.handle) else own.handle
        branch, node = self.run.branches.get(self.node.operator), self.node
        is_plain = branch is not None and node.operator in branch.plain
        self._current = LastingStream(handle, own if is_plain else None)
        if branch is not None and branch.may_split and branch.stream is own:
            branch.join(node, self._ports, self.outputs.send_fences)
            self._member = Member(branch, node.remaining, node.clock.timestamp())
            self.is_unusual = True
            self.lifetimes.after_look = self._look_at_branch
        self.work_on(own)

    def _look_at_branch(self, keeps_up: bool) -> None:
        """Leave the stream that the operator shares, between two computes, if streams of their own pay."""
        member = self._member
        assert member is not None
        node, probed = self.node, member.probes
        is_split = member.is_to_split(keeps_up, node.remaining, node.clock.timestamp())
        if member.probes is not probed:
            self.lifetimes.readers[0].doubt()  # looks end its spans
            if self._is_steady():
                self._go_steady()
        if not is_split:
            self._choose_whether_to_keep(keeps_up, member)
            return
        has_others = len(self.lifetimes.readers) > 1 or not self.outputs.is_only
        if member.stays or has_others or (self._current is not None and self._current.is_read):
            self.lifetimes.after_look = self._settle_branch
            return
        try:
            state = self._find_state()
        except RuntimeError:  # another thread has changed a dict meanwhile: at the next look, then
            return
        self.lifetimes.after_look = self._settle_branch
        self._leave_branch(state)

    def _choose_whether_to_keep(self, keeps_up: bool, member: Member) -> None:
        """Keep nothing of what is received, if its memory is used again in the order of the stream (`in_order`)."""
        own, reader, held = self.allocation.own, self.lifetimes.readers[0], self.lifetimes.held
        assert own is not None
        if (
            in_use
            or not (keeps_up and reader.is_quiet and self._is_steady() and own.handle.follows_default)
            or (member.stays or self._receives_others or member.probes)
        ):
            return
        # The look has found all that was received to be held or released.
        if not all(map(is_reused_in_order, owners_in([*held.watched.values(), *reader.frames]))):
            self._receives_others = True
            return
        held.clear()
        reader.clear()
        self._in_order = self.run.in_order_of(member.branch, own)
        self._in_order.begin(self._step, self.node.clock.timestamp())
        self.outputs.is_bare = True
        self._update_outputs()
        self._go_steady()

    def _note_feeders(self) -> None:
        """Note whether messages come from an operator that may not make its memory on the shared stream.

        They may be held, here or further on, when that operator no longer sends any.
        """
        branch = self.run.branches.get(self.node.operator)
        feeders = [feeder for port in self._ports for queue in port.queues for feeder in queue.feeders]
        if branch is not None and not all(feeder.operator in branch.plain for feeder in feeders):
            self._receives_others = True

    def _end_step(self) -> None:
        """Look at the device now and then, after a compute of an operator that keeps nothing.

        It is also called as soon as something was kept: memory that is not used again in order.
        """
        held, member, in_order = self.lifetimes.held, self._member, self._in_order
        assert member is not None
        assert self._current is not None
        self._forget_items()
        if held.received or held.unsorted:
            self._receives_others = True
        elif (
            in_order is not None and not member.stays and in_order.end(self._step, self.node.clock.timestamp)
        ):
            # The next compute makes sure that the stream is current: the program may have changed it unseen. The
            # stream of a library that has been imported meanwhile is the default stream so far.
            thread.current.group = None
            if self._current.is_outdated:
                self._go_steady()
            return
        self._keep_all()
        self.lifetimes.note_compute()

    def _keep_all(self) -> None:
        """Keep what the operator receives from now on."""
        in_order, self._in_order = self._in_order, None
        if in_order is None:
            return
        assert self._member is not None
        if in_order.are_to_probe:
            self._member.begin_probes(self.node.remaining, self.node.clock.timestamp())
        self.outputs.is_bare = False
        self.lifetimes.readers[0].resume()
        self._update_outputs()
        if self._is_steady():
            self._go_steady()

    def _settle_branch(self, keeps_up: bool) -> None:
        """Release what those had kept that have left the branch, after a look, as long as there is something."""
        assert self._member is not None
        left = self._member.branch.left
        if left is None or left.settle():
            self.lifetimes.after_look = None

    def _find_state(self) -> list[Any]:
        """Return the owners of the memory that the operator holds between two computes."""
        operator = self.node.operator
        found: list[Any] = [dict(vars(operator)), *variables_beside(operator), *objects_named_in(operator)]
        found += [attributes_of_class(type(operator)), modules_of(operator), operator.metadata]
        owners: list[Any] = []
        # Nothing else: another object that the operator releases may have to be gone at once, as a file.
        add_memory(found, owners, _MANY)
        return owners

    def _leave_branch(self, state: list[Any]) -> None:
        """Work on a stream of the operator's own from now on, unless the pool has none left."""
        allocation, order, held = self.allocation, self.order, self.lifetimes.held
        shared = allocation.own
        own = allocation.take_another()
        if own is None or shared is None:
            return
        own.wait(order.fences_on(shared).insert())
        # What was made on the shared stream is kept until the new one has completed its work, as if it had been
        # received: a library gives what is released to the next one on the stream on which it was made.
        held.unsorted += state
        if held.unsorted:
            held.sort()
        assert self._member is not None
        branch = self._member.branch
        if branch.in_order is not None:  # otherwise each operator has kept all that it received
            self.run.left_of(branch, shared).add(held.watch_all(), own)
        self.run.manage(own)
        if self.run.observer is not None:
            self.run.observer.uses_stream(self.node, own, shared)
        self.lifetimes.move(order.fences_on(own))
        self._current = LastingStream(own.handle)
        for port in self._ports:
            port.own = own
        self.outputs.replace(shared, own)
        self._update_outputs()
        self._end_steady()

    def _forget_items(self) -> None:
        for port in self._ports:
            port.item = NOTHING

    def begin_with(self, begin: Callable[[], None]) -> None:
        """From the next compute on, call a function when a compute begins."""
        compute = self._compute

        def compute_after(op_input: Any, op_output: Any, context: Any) -> None:
            begin()
            compute(op_input, op_output, context)

        self._compute = compute_after
        if self._state is _OFF:
            self.node.compute = compute_after
        self._end_steady()

    def items_received(self) -> list[Any]:
        """Return the items that this compute received at each input, for `receive_again`."""
        return [] if self._state is _OFF else [port.item for port in self._ports]

    def receive_again(self, items: list[Any]) -> None:
        """Treat this compute as if it had received the items of an earlier compute."""
        if self._state is not _OFF:
            for port, item in zip(self._ports, items, strict=False):
                if item is not NOTHING:
                    port.item = item
                    self.received(port, item)

    def synchronize(self) -> None:
        """Wait until the operator's streams have finished all submitted work; release nothing."""
        self.order.synchronize()

    def release(self) -> None:
        """Release all frames but those that the program holds, because the streams have finished."""
        self._forget_items()
        self.order.close()
        if self._member is not None and self._member.branch.left is not None:
            self._member.branch.left.clear()
        self.lifetimes.clear()

    def close(self) -> None:
        """Release everything, because there will be no more work."""
        self.release()
        self.lifetimes.held.clear()
        self.lifetimes.after_look = None
        self.order.pending.clear()

    def close_knobs(self) -> None:
        """Free the memory of the knobs, because recordings that use it are gone."""
        if self.knobs is not None:
            self.knobs.close()

    # Which operators are watched.

    def _enter(self, state: WatchState) -> None:
        """Change whether the operator is watched; nothing else does."""
        if (state is _OFF) is not (self._state is _OFF):
            self.node.input.watch(None if state is _OFF else self)
            self.node.compute = self._compute if state is _OFF else self._watched_compute
        self._state = state

    def _watch_late(self) -> None:
        """Watch an operator again, in the middle of a compute, after a time of not watching it."""
        for port in self._ports:
            port.recall(self.node.remaining)
        self._enter(_LATE)

    def _keep_late(self) -> None:
        """Keep the frames of an operator that requests its first stream after its first compute."""
        held = self.lifetimes.held
        held.is_on = True
        self._update_inputs()
        operator = self.node.operator
        found: list[Any] = [variables_of_compute(), operator.__dict__, attributes_of_class(type(operator))]
        found += [modules_of_compute(), operator.metadata]
        for port in self._ports:
            found += [message.data for message in messages_in(port.item)]
        add_owners(found, held.unsorted, _MANY)
        # Nothing else of these, which others use as well.
        for _ in range(_TRIES):
            try:
                beside = [*variables_beside(operator), *objects_named_in(operator)]
                add_memory(beside, held.unsorted, _MANY)
            except RuntimeError:  # another thread has changed a dict meanwhile
                continue
            return

    def _decide(self) -> None:
        """Stop keeping the frames of an operator that used no stream in its first compute.

        It is still watched for order if it received messages with fences.
        """
        self.lifetimes.held.is_on = False
        self.lifetimes.held.clear()
        self._update_inputs()
        self._enter(_ON if self.order.has_received or self.checker is not None else _OFF)

    # Received messages. `InputContext.receive` has a copy of `received` for a message with one fence.

    def received(self, port: InputPort, item: Any) -> None:
        """Order the operator's stream after a received item, and keep the item alive."""
        held = self.lifetimes.held
        if type(item) is Batch:
            for part in item:
                self.received(port, part)
        elif type(item) is Envelope:
            if port.own is not None:
                wait_for(item, port.own)
                if item.work is not None:
                    self.note_work(item.work, port.own)
            if port.is_noted:
                self.note(port, item)
            if held.is_on:
                kept: list[Any] = []
                add_owners(item.data, kept)
                if item.details is not None:
                    add_owners(item.details.metadata, kept)
                self._keep(port, kept, item)
        elif held.is_on:
            kept = []
            add_owners(item, kept)
            self._keep(port, kept, None)

    def _keep(self, port: InputPort, owners: list[Any], message: Envelope | None) -> None:
        """Keep the owners of a received item that are not used again in the order of the operator's stream."""
        held = self.lifetimes.held
        if port.is_in_order and not in_use and (message is None or not message.has_fences):
            owners = [owner for owner in owners if not is_reused_in_order(owner)]
        if owners:
            (held.unsorted if in_use else held.received).extend(owners)
            self._step.left = 1

    def received_unwatched(self, port: InputPort, item: Any) -> None:
        """Watch an operator again if a received item has a fence."""
        if any(message.has_fences for message in messages_in(item)):
            self._watch_late()
            port.item = item
            self.received(port, item)

    def note_work(self, work: EmittedWork, own: ManagedStream) -> None:
        """Notify the tensors of a message that plain code is ordered after their work."""
        if self._current is not None:
            work.note_ordered(own)

    def note(self, port: InputPort, message: Envelope) -> None:
        """Record the fences of a message for later emits."""
        if not message.has_fences:
            return
        own = port.own
        if own is None or not self.outputs.is_only:
            is_first = not self.order.has_received
            self.order.add_message(message, self.node.remaining)
            if is_first:
                self._update_outputs()

    # Methods that compute calls through its contexts.

    def receive(self, port: InputPort, allocate: bool, sync_to_default: bool) -> Any:
        """Order the operator's stream after the messages received at a port, and return its handle."""
        own = port.own
        item = port.item
        if self._member is not None:
            self._member.stays = True
        if own is None or item is NOTHING or sync_to_default or self.checker is not None:
            return self._receive(port, allocate, sync_to_default)
        # The stream was already ordered when the messages were received.
        if get_ident() != self.allocation.current_on:
            self.allocation.make_current(own.device_id)
        if not self.is_unusual:
            inputs = self.node.input
            inputs.usual_on, inputs.is_usual = self.allocation.current_on, self.allocation.stays_current
        if type(item) is Envelope:
            if item.work is not None:
                item.work.note_ordered(own)
        elif type(item) is Batch:
            note_ordered(item, own)
        if self.order.pending:
            self.order.settle(own, self.outputs.is_only)
        return own.handle

    def _receive(self, port: InputPort, allocate: bool, sync_to_default: bool) -> Any:
        """Order the operator's stream if it was not ordered on receive, and return its handle."""
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
        allocation.make_current(own.device_id)
        if own is allocation.own:
            self._emit_everywhere(own)
        note_ordered(port.item, own)
        self.order.settle(own, self.outputs.is_only)
        if own is allocation.own:
            self._order_each(port, own)
        if self.checker is not None:
            if own is allocation.own:
                self.checker.uses_own_stream()
            else:
                self.checker.uses_stream_of_others(own)
            self.checker.are_ordered_after_all(self._ports)
        if sync_to_default:
            self._sync_to_default(own)
        return default_handle(own.device_id) if is_default(own.handle) else own.handle

    def _borrow(self, port: InputPort) -> ManagedStream | None:
        """Use the first stream received at a port for this compute and its messages, in place of its own."""
        allocation, turn = self.allocation, self.node.remaining
        if allocation.has_borrowed(turn):
            return allocation.borrowed
        for message in messages_in(port.item):
            if message.fences is not None:
                allocation.borrow(message.fences.stream, turn)
                self._use(message.fences.stream)
                self._update_outputs()
                return message.fences.stream
        return None

    def _use_default_stream(self) -> Any:
        """Make the operator's device current, and return its default stream, on which work is now expected."""
        allocation = self.allocation
        device_id = allocation.device_id
        default = self.run.default_stream(device_id)
        self._use(default)
        if self.checker is not None:
            self.checker.uses_stream_of_others(default)
        allocation.make_current(device_id)
        return default_handle(device_id)

    def _sync_to_default(self, own: ManagedStream) -> None:
        """Order the default stream after the operator's stream, and emitted messages after the default stream."""
        default = self.run.default_stream(own.device_id)
        default.wait(self.order.fences_on(own).insert())
        self._use(default)

    def received_streams(self, port: InputPort) -> list[Any]:
        """Return the handle of the stream of each message received at a port, or None."""
        self._must_have_received(port, "receive_cuda_streams")
        handles: list[Any] = []
        for message in parts_of(port.item):
            if type(message) is not Envelope or message.fences is None:
                handles.append(None)
                continue
            managed = message.fences.stream
            self._use(managed)  # the operator may launch kernels there that read its input
            if self.checker is not None:
                self.checker.uses_stream_of(message)
            if message.more_fences is not None:
                wait_for(message, managed)  # the caller gets one stream for all the work of a message
            handles.append(managed.handle)
        return handles

    def allocate(self, name: str) -> Any:
        """Return the operator's stream of this name, from its pool at the first call; None if none is left."""
        found = self.allocation.named(name)
        if found is None:
            return None
        self._use(found)
        self.allocation.make_current(found.device_id)
        if self.checker is None:
            self.given[name] = found.handle
        else:
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
        of_target = later if is_default(later.handle) else self.run.find(target)
        if of_target is not None:
            self._use(of_target)  # the operator orders a stream in order to launch there
            self.order.note_ordered(of_target, others, self.node.remaining)
        if self.checker is not None:
            self.checker.are_ordered(self._ports, others)

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

        Returns None if they come with no work. `readers` are the handles of the program's streams. From now on,
        received frames are also kept until the work on those streams is complete.
        """
        for reader in readers:
            self._use(self.run.stream_of(reader))
        if not any(message.has_fences for message in messages_in(port.item)):
            return None
        return self.run.stream_of(self.receive(port, True, False)).now()

    def set_output(self, stream: Any, port: str) -> None:
        """Attach a stream to the messages emitted at a port."""
        queues = self.node.output_queues
        name = port or (next(iter(queues)) if len(queues) == 1 else "")
        if name not in queues:
            raise no_such_port(self.node.name, "output", port, queues)
        if stream is DEFAULT_STREAM and not self.is_gpu_available:
            return  # the handle that receive_cuda_stream returned because there was no stream
        managed = self._managed(stream, "set_cuda_stream")
        self._use(managed)  # it may be the stream of another operator, which the program knows
        if self.outputs.chosen.get(name) is not managed:
            self.outputs.choose(name, managed)
            self._update_outputs()

    def work_on(self, own: ManagedStream) -> None:
        """From now on, order the operator's own stream after each message, and attach it to emitted messages."""
        self._use(own)
        self._emit_everywhere(own)
        for port in self._ports:
            self._order_each(port, own)

    def follow_graph(self) -> None:
        """Send and receive as the flows of the operator are now, between two computes."""
        self._keep_all()  # it may receive from others now
        self._note_feeders()
        self._update_outputs()

    def use(self, managed: ManagedStream) -> None:
        """Expect work of the operator on a stream that it did not request."""
        self._use(managed)

    # Inside.

    def _use(self, managed: ManagedStream) -> None:
        """Expect work of the operator on a stream, and keep received frames until that work is complete."""
        fences = self.order.fences_on(managed)
        lifetimes = self.lifetimes
        if lifetimes.is_read_on(fences):
            return
        if self._state is _OFF:
            self._watch_late()
        elif self._state is not _LATE:
            self._enter(_ON)
        if not lifetimes.held.is_on or self._in_order is not None:
            self._keep_late()
        lifetimes.add_reader(fences)
        self._end_steady()
        self._step.left = 1  # if it kept nothing until now, its step ends with this compute
        self.run.manage(managed)
        if self.run.observer is not None:
            self.run.observer.uses_stream(self.node, managed)
        self.node.lifetimes = lifetimes
        if self.knobs is not None:
            self.knobs.order(managed)
        self._update_outputs()

    def _order_each(self, port: InputPort, own: ManagedStream) -> None:
        """From now on, order the operator's own stream after each message as it is received."""
        port.own = own
        self._update_inputs()

    def _emit_everywhere(self, own: ManagedStream) -> None:
        self.outputs.choose_for_others(own)
        self._update_outputs()

    def _update_outputs(self) -> None:
        self.outputs.update()
        self._update_inputs()

    def _update_inputs(self) -> None:
        """Update what a receive has to do at each port."""
        held = self.lifetimes.held
        for port in self._ports:
            port.is_noted = port.own is None or not self.outputs.is_only
            port.kept = held.received if held.is_on and not port.is_noted else None
            port.unsorted = held.unsorted
            port.is_in_order = self._in_order is not None
            is_shared = port.kept is not None and has_other_receivers(port)
            port.shared = held.shared if is_shared else None
            port.find_whether_steady(self.node.input.announces)

    def _must_have_received(self, port: InputPort, caller: str) -> None:
        if self._state is _OFF:
            self._watch_late()
        if port.item is NOTHING:
            port.recall(self.node.remaining)
            self._step.left = 1  # so that it is forgotten
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


def _off_stream(compute: Callable[..., None]) -> Callable[..., None]:
    """Return a compute that finds what was current before the run, on a thread where others have their streams."""

    def compute_off_stream(op_input: Any, op_output: Any, context: Any) -> None:
        leave()
        compute(op_input, op_output, context)

    return compute_off_stream
