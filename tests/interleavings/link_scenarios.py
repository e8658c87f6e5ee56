"""Scenarios with links: a flow that leaves the run, one that comes back, the thread of the loop, and a peer.

``link`` sends to itself: one run has both ends of the flow, so that everything that happens at either is in one
engine. In ``link-out`` and ``link-in`` a thread of the scenario is the other part. The last ones are about the loop
itself: links that come and go.

Some messages are arrays, which take the short way through the codec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from headrace import CountCondition, IOSpec
from headrace.conditions import AsynchronousCondition, AsynchronousEventState
from headrace.core.errors import PeerLost
from headrace.link.loop import default_loop
from headrace.link.protocol import Sample, Terms
from headrace.link.receiver import Receiver
from headrace.link.sender import Sender
from headrace.parts.cut_flow import CutFlow
from headrace.parts.idleness import PartIdleness
from headrace.parts.link_operators import ReceiveFromPart, SendToPart

from .bindings import PATIENCE_NS
from .scenario import Scenario, World
from .scenarios import MS, SCENARIOS, _add, _numbers
from .system import End

__all__ = ["SCENARIOS"]

_FLOW = CutFlow(
    "edge.source.out -> server.sink.in",
    *("edge", "server"),
    *(("source.out",), "sink.in"),
    2,
    IOSpec.QueuePolicy.FAULT,
    True,
)
_TERMS = Terms(_FLOW.name, _FLOW.size, silence=7200.0)
_FRAMES = 3


def _operator(world: World, kind: type, carrier: End, room: int = _FLOW.room) -> Any:
    """Make an operator for one end of the flow, with its link."""
    port = "in" if kind is SendToPart else "out"
    flow = replace(_FLOW, name=f"{_FLOW.name} ({port})", room=room)  # both ends may be in one graph
    operator = kind(world.app, flow, port, world.app.fail, PartIdleness())
    end: Any = (Sender if kind is SendToPart else Receiver)(carrier, _TERMS, operator.on_event)
    operator.connect(end)
    world.app.add_operator(operator)
    return operator


def _message(number: int, no_array: int) -> Any:
    """Return a message: an array of its number, or a tuple if that is `no_array`."""
    return ("source", number) if number == no_array else np.array([number])


def _number_in(message: Any) -> tuple[str, int]:
    return message if isinstance(message, tuple) else ("source", int(message[0]))


def _send(world: World, carrier: End) -> Any:
    def body(op: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(_message(op.ticks - 1, no_array=0), "out")

    sender = _operator(world, SendToPart, carrier)
    source = world.op("source", CountCondition(world.app, _FRAMES), outputs=["out"], body=body)
    world.app.add_flow(source, sender, {("out", "in")}, size=_FLOW.size)
    return sender


def _receive(world: World, carrier: End) -> Any:
    receiver = _operator(world, ReceiveFromPart, carrier)
    world.app.add_flow(receiver, world.sink("sink"), {("out", "in")}, size=_FLOW.size)
    return receiver


def _check_closed(world: World) -> None:
    left = [file for file in world.system.files.values() if isinstance(file, End)]
    assert not left, f"connections are left open: {left}"


def _check(world: World) -> None:
    received = [_number_in(message) for message in world.received["sink"]]
    assert received == _numbers("source", _FRAMES), f"the sink received {received}"
    _check_closed(world)


# Both ends in one run.


def _loopback(world: World) -> None:
    ahead, back = world.system.connect()
    world.notes["receiver"] = _receive(world, back)
    world.notes["sender"] = _send(world, ahead)


def _check_loopback(world: World) -> None:
    _check(world)
    sender, receiver = world.notes["sender"].counts(), world.notes["receiver"].counts()
    assert sender.sent == receiver.arrived == _FRAMES, f"{sender} {receiver}"
    assert not sender.unanswered, f"{sender.unanswered} credits did not come back"


_add((0, 1, 2), Scenario("link", _loopback, check=_check_loopback))


# One end in the run, the other in a thread of the scenario.


class _Peer:
    """Serves an end by hand, as another process does with its own loop."""

    def __init__(self, world: World, carrier: End, kind: Callable[..., Any]) -> None:
        self.world, self._carrier = world, carrier
        self.end = kind(carrier, _TERMS, lambda: None, loop=self)

    def add(self, link: Any) -> None: ...

    watch = remove = call_soon = add

    def serve(self) -> None:
        """Wait for a message, and read it."""
        self.world.control.wait_until(lambda: self._carrier.is_readable)
        self.end.serve(True, False)

    def serve_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            assert self.end.failure is None, f"the link failed: {self.end.failure}"
            self.serve()


def _out(world: World) -> None:
    ahead, back = world.system.connect()
    world.notes["sender"] = _send(world, ahead)
    world.notes["peer"] = _Peer(world, back, Receiver)
    world.received["sink"] = []


def _take(world: World) -> None:
    """Take a message at a time, and give its credit when the next one is there or none can come before."""
    peer = world.notes["peer"]
    received = world.received["sink"]
    while True:
        peer.serve_until(lambda: bool(peer.end._arrived) or peer.end._machine.peer_ended)
        sample = peer.end.take()
        if sample is None:
            break
        received.append(sample.data if len(sample.data) == 1 else tuple(sample.data))
        peer.end.give_credits(1)
    peer.end.close()


_add((0, 1, 2), Scenario("link-out", _out, others={"peer": _take}, check=_check))


def _take_one(world: World) -> None:
    """Take one message and no more."""
    peer = world.notes["peer"]
    peer.serve_until(lambda: bool(peer.end._arrived))
    world.received["sink"].append(peer.end.take())
    peer.end.close()


_add((1, 2), Scenario("link-out-closed", _out, others={"peer": _take_one}, check=_check_closed))


def _in(world: World) -> None:
    ahead, back = world.system.connect()
    world.notes["receiver"] = _receive(world, back)
    world.notes["peer"] = _Peer(world, ahead, Sender)


def _give(world: World) -> None:
    """Send as fast as credits allow, and wait for the last one."""
    peer = world.notes["peer"]
    for number in range(_FRAMES):
        peer.serve_until(lambda: peer.end.credits > 0)
        assert peer.end.send(Sample(_message(number, no_array=1)))
    peer.end.end()
    peer.serve_until(lambda: peer.end.credited == _FRAMES)
    peer.end.close()


_add((0, 1, 2), Scenario("link-in", _in, others={"peer": _give}, check=_check))


def _in_acknowledging(world: World) -> None:
    """A part that may be lost: a credit says that nothing is left to do for the message."""
    _in(world)
    receiver = world.notes["receiver"]
    receiver.is_acknowledging = True
    receiver.idleness.compose([], [receiver])


def _give_and_count(world: World) -> None:
    """Send as fast as credits allow; no more of them come back than messages were received."""
    peer = world.notes["peer"]
    received = world.received["sink"]

    def has_credits(count: int) -> bool:
        assert peer.end.credited <= len(received), "a credit came back before its message was taken"
        return bool(peer.end.credited >= count)

    for number in range(_FRAMES):
        peer.serve_until(lambda: has_credits(0) and peer.end.credits > 0)
        assert peer.end.send(Sample(_message(number, no_array=-1)))
    peer.serve_until(lambda: has_credits(_FRAMES))
    peer.end.end()
    peer.end.close()


_add(
    (0, 1, 2),
    Scenario("link-in-answers", _in_acknowledging, others={"peer": _give_and_count}, check=_check),
)


def _give_and_go(world: World) -> None:
    """Send one message and go without a word."""
    peer = world.notes["peer"]
    peer.serve_until(lambda: peer.end._machine.is_open)
    assert peer.end.send(Sample(np.array([0])))
    peer.end._carrier.close()


_add(
    (1, 2),
    Scenario("link-in-lost", _in, others={"peer": _give_and_go}, check=_check_closed, raises=(PeerLost,)),
)


def _give_until_the_end(world: World) -> None:
    """Send a message, stop the operator that took it, and wait until it is known that no more are taken."""
    peer = world.notes["peer"]
    assert peer.end.send(Sample(np.array([0])))
    peer.serve_until(lambda: peer.end.credited == 1)
    world.app.graph.find("sink").stop_execution()
    peer.serve_until(lambda: peer.end.has_ended)
    peer.end.close()


_add((1, 2), Scenario("link-in-ended", _in, others={"peer": _give_until_the_end}, check=_check_closed))


def _in_uneven(world: World) -> None:
    """A compute is not as short as the one before, and senders wait for all places."""
    ahead, back = world.system.connect()
    received = world.received["sink"] = []

    def body(op: Any, op_input: Any, op_output: Any) -> None:
        received.append(op_input.receive("in"))
        if op.ticks == 2:
            world.control.sleep(8 * MS)

    receiver = _operator(world, ReceiveFromPart, back, room=_FLOW.size)
    sink = world.op("sink", inputs=["in"], body=body)
    world.app.add_flow(receiver, sink, {("out", "in")}, size=_FLOW.size)
    world.notes["peer"] = _Peer(world, ahead, Sender)


def _give_and_look(world: World) -> None:
    """Note when the credit of the second message comes back, and when all have after the end."""
    peer = world.notes["peer"]
    times = world.notes["times"] = []
    for first, last in ((0, 2), (2, _FRAMES)):
        for number in range(first, last):
            assert peer.end.send(Sample(_message(number, no_array=-1)))
        if last == _FRAMES:
            peer.end.end()
        peer.serve_until(lambda count=last: peer.end.credited == count)
        times.append(world.control.now)
    peer.end.close()


def _check_in_uneven(world: World) -> None:
    _check(world)
    if world.is_on_time:
        late = [time / MS - world.times("sink")[1] for time in world.notes["times"]]
        assert max(late) <= PATIENCE_NS / MS, f"the credits came {late} ms after the second message was taken"


_add((2,), Scenario("link-in-uneven", _in_uneven, others={"peer": _give_and_look}, check=_check_in_uneven))


# The loop: links that come and go.


def _again(world: World) -> None:
    """A link that is lost, after which there is none, and then another in its place."""
    _in(world)
    world.notes["receiver"]._on_failure = lambda error: None


def _give_again(world: World) -> None:
    """Go without a word; when the thread of the loop has ended, come back and send everything."""
    first = world.notes["peer"]
    first.serve_until(lambda: first.end._machine.is_open)
    first.end._carrier.close()
    world.control.wait_until(lambda: default_loop().thread is None)
    ahead, back = world.system.connect()
    receiver = world.notes["receiver"]
    receiver.connect(Receiver(back, _TERMS, receiver.on_event))
    world.notes["peer"] = _Peer(world, ahead, Sender)
    _give(world)


_add((1, 2), Scenario("link-again", _again, others={"peer": _give_again}, check=_check))


def _other(world: World) -> None:
    """A run that waits for an event, beside links that are not its own."""
    event = world.notes["event"] = AsynchronousCondition(world.app)

    def start(op: Any) -> None:
        event.event_state = AsynchronousEventState.EVENT_WAITING

    def body(op: Any, op_input: Any, op_output: Any) -> None:
        event.event_state = AsynchronousEventState.EVENT_NEVER

    world.op("waits", event, start=start, body=body)
    here, world.notes["there"] = world.system.connect()
    world.notes["link"] = Sender(here, _TERMS, lambda: None)


def _come_and_go(world: World) -> None:
    """Remove the last link while the loop waits for its messages, then another as it is added; then end the run."""
    system, control = world.system, world.control
    control.wait_until(lambda: all(epoll.is_awaited for epoll in system.epolls))
    world.notes["link"].close()
    world.notes["there"].close()
    control.wait_until(lambda: default_loop().thread is None)
    here, there = system.connect()
    there.close()
    Sender(here, _TERMS, lambda: None).close()
    control.wait_until(lambda: default_loop().thread is None)
    world.notes["event"].event_state = AsynchronousEventState.EVENT_DONE


_add((1, 2), Scenario("link-other", _other, others={"other": _come_and_go}, check=_check_closed))
