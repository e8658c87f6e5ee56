"""Branch: neighbours that share one stream: a row for good, or connected operators until streams of their own pay.

On one stream, messages need no event and no wait. While the host sets the pace, there is nothing else to gain: each
stage is done before the next one is launched. If the device sets the pace, it could work on one frame in one stage
and on the next frame in the stage before. So the operators then leave the shared stream, each for one of its own,
and stay there:

- Streams of their own pay if a compute of the branch takes more than 25 µs on average while the device is behind
  (`lifetimes`), or more than 60 µs while probes find the device busy. The branch splits when an operator has found
  this in several spans of computes in a row.
- Probes are for branches in which an operator waits for the device, as by a copy to the host: at looks the device
  is never behind then, and yet the others could work meanwhile. A probe finds that the device has not passed a
  fence from before a compute when the compute ends, or that another operator computes at the same time. An operator
  probes in the spans after a slow one. If it finds nothing, it rests, for longer and longer: the host may be slow,
  or the source. Operators that look together (`in_order`) rest together, and all begin to probe then.
- From that moment on, all of them send their messages with a fence.
- At its next look, each operator leaves: its new stream waits for all work on the shared one so far. That includes
  its own work, and the work behind the messages without a fence that it has still to receive.
- What an operator holds when it leaves was made on the shared stream, and a library would give it to the next one
  there as soon as it is released. So it is kept like what the operator received (`lifetimes`). Soon there is no
  next one: all operators leave, and nobody works on the shared stream any more.

An operator that was given the handle of the stream, or read which one is current, keeps it. Its stream never
changes within a compute.

Measured on an H200, a limit of 0.2 ms between the computes of an operator splits rows that are bound by the host:
the seven operators of `benchmarks.stream_cost` take 0.1 ms a frame, and 0.2 to 0.4 ms in slow spells; 25 operators
take 0.35 ms at best. Looks in a row that find the device behind miss rows with much to overlap: on a shared stream,
an operator that has waited for the device finds it up to date at its next look. Without probes, graphs of ten short
stages split on a host that took 50 µs for a compute, in seven runs of ten, and were slower by a fifth afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headrace._runtime.messages.ports import NOTHING

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import Fences
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.messages.ports import InputPort
    from headrace._runtime.streams.in_order import InOrder
    from headrace._runtime.streams.left_frames import LeftFrames
    from headrace.core.operator import Operator

_SPAN = 8  # computes of an operator, at least; while the device is behind, looks come after two and after six
_SPANS = 4  # in a row
# What a compute takes on average if streams of their own pay. An event and a wait take 2 to 3 µs of it.
_PAYS_NS = 60_000  # if probes find the device busy
_PAYS_BEHIND_NS = 25_000  # if the device was behind
_RESTS = 8, 512  # spans without probes after the first that found nothing, and the most


class Computing(Protocol):
    """An operator in a run (`RunningOperator`): the number of computes left, which falls by one after each."""

    remaining: int


class Branch:
    """Connected operators that share one stream.

    Attributes
    ----------
    plain
        The operators that refer to no stream of a library: what they make is made on the shared stream.
    in_order
        The looks at the device of the operators that keep nothing, once there was one.
    left
        What operators that have left had kept, as long as others may read it on the shared stream.
    may_split
        Whether the operators leave the stream when streams of their own pay.
    is_split
        Whether they do so now. The compute of any of them sets it, and none clears it.
    stream
        The stream, once the first of them has asked for it (`is_open`); None if the pool had none left.
    lock
        Held while `is_split` is set, and while an operator chooses how to send its messages.
    """

    __slots__ = (
        "_granted",
        "_nodes",
        "_ports",
        "_send_fences",
        "in_order",
        "is_open",
        "is_split",
        "left",
        "lock",
        "may_split",
        "plain",
        "stream",
    )

    def __init__(self, may_split: bool) -> None:
        self.plain: set[Operator] = set()
        self.in_order: InOrder | None = None
        self.left: LeftFrames | None = None
        self.may_split = may_split
        self.is_split = False
        self.is_open = False
        self.stream: ManagedStream | None = None
        self.lock = threading.Lock()
        # Of the operators that have begun to compute: what makes each send fences, the nodes, their inputs, and the
        # sum of the computes that they had left then.
        self._send_fences: list[Callable[[], None]] = []
        self._nodes: list[Computing] = []
        self._ports: list[list[InputPort]] = []
        self._granted = 0

    def join(self, node: Computing, ports: list[InputPort], send_fences: Callable[[], None]) -> None:
        """Note that an operator begins to compute, its inputs, and what makes it send its messages with fences."""
        with self.lock:
            self._ports.append(ports)
            self._send_fences.append(send_fences)
            self._nodes.append(node)
            self._granted += node.remaining

    def split(self) -> None:
        """Let all operators send their messages with fences from now on, and then leave."""
        with self.lock:
            for send_fences in self._send_fences:
                send_fences()
            self.is_split = True

    @property
    def is_in_compute(self) -> bool:
        """Whether an operator has received something in a compute that has not ended."""
        return any(
            port.item is not NOTHING or port.received_in == node.remaining
            for node, ports in zip(self._nodes, self._ports, strict=True)
            for port in ports
        )

    @property
    def members(self) -> int:
        """The number of operators that have begun to compute."""
        return len(self._nodes)

    @property
    def computes(self) -> int:
        """The number of computes of all operators so far."""
        return self._granted - sum([node.remaining for node in self._nodes])


class Member:
    """How many spans of computes in a row one operator of a branch has found in which streams of their own pay.

    Attributes
    ----------
    branch
        The branch.
    stays
        Whether the operator was given the handle of the stream.
    probes
        Whether its computes probe in this span (`probing`).
    """

    __slots__ = (
        *("_at", "_before", "_found", "_is_behind", "_missed", "_remaining", "_rest", "_resting", "_spans"),
        *("branch", "probes", "stays"),
    )

    def __init__(self, branch: Branch, remaining: int, timestamp: int) -> None:
        self.branch = branch
        self.stays = False
        self.probes = False
        self._spans = 0
        # How many spans to rest after the next one whose probes find nothing, and how many are left.
        self._rest, self._resting = _RESTS[0], 0
        self.begin_span(remaining, timestamp)

    def begin_span(self, remaining: int, timestamp: int) -> None:
        """Begin a span of computes."""
        # The last compute before it, those of all operators, the time, and whether a look has found the device
        # behind since.
        self._remaining, self._before, self._at = remaining, self.branch.computes, timestamp
        self._is_behind = False
        # The probes since that found the device busy, and those that did not.
        self._found = self._missed = 0

    def is_to_split(self, keeps_up: bool, remaining: int, timestamp: int) -> bool:
        """Note whether a look has found that the device keeps up; return whether the branch is split."""
        branch = self.branch
        self._is_behind = self._is_behind or not keeps_up
        if self._remaining - remaining >= _SPAN:
            least = _PAYS_BEHIND_NS if self._is_behind else _PAYS_NS
            is_slow = timestamp - self._at > least * (branch.computes - self._before)
            pays = is_slow if self._is_behind else self._is_busy(is_slow)
            self.probes = self.probes and is_slow
            self._spans = self._spans + 1 if pays else 0
            self.begin_span(remaining, timestamp)
            if self._spans >= _SPANS and not branch.is_split:
                branch.split()
        if branch.is_split:
            self.probes = False
        return branch.is_split

    def begin_probes(self, remaining: int, timestamp: int) -> None:
        """Begin a span with probes, rested or not: all operators of the branch do."""
        self.probes = True
        self._resting = 0
        self.begin_span(remaining, timestamp)

    def rest(self) -> None:
        """End probes that found nothing, and rest for longer than the last time."""
        self.probes = False
        self._resting, self._rest = self._rest, min(2 * self._rest, _RESTS[1])

    def _is_busy(self, is_slow: bool) -> bool:
        """Return whether the probes of a slow span found the device busy; if there were none, begin with them."""
        is_busy = is_slow and self._found > self._missed
        if self.probes and not is_busy:
            self.rest()
        elif self._resting:
            self._resting -= 1
        self.probes = not self._resting
        return is_busy

    def probing(
        self, compute: Callable[..., None], fences: Fences, make_device_current: Callable[[], None]
    ) -> Callable[..., None]:
        """Return a compute with a probe: whether the device is busy with the work before it, or others compute."""
        branch = self.branch

        def compute_with_probe(op_input: Any, op_output: Any, context: Any) -> None:
            computes, is_shared = branch.computes, branch.is_in_compute
            make_device_current()
            fences.insert()
            number = fences.last
            compute(op_input, op_output, context)
            # The engine has yet to count this compute.
            if (
                is_shared
                or branch.computes != computes
                or branch.is_in_compute
                or not fences.has_passed(number)
            ):
                self._found += 1
            else:
                self._missed += 1

        return compute_with_probe
