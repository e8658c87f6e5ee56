"""What the driver and the processes of a run, and their agents, say to each other (`channel`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from headrace.core.control import TimeBase
    from headrace.core.errors import Failure
    from headrace.core.outcome import Outcome
    from headrace.observe.events.clock_offsets import ClockOffset
    from headrace.parts.environment import Launch
    from headrace.parts.idleness import IdleReport
    from headrace.parts.outcomes import PartProgress

Address: TypeAlias = tuple[str, int] | str
"""Where somebody listens: a host and a port, or the name of a Unix socket of this host."""
TOKEN = "HEADRACE_TOKEN"
"""The variable with the token of a run, which processes on other hosts know as well."""
WORKER_ADDRESS = "HEADRACE_WORKER_ADDRESS"
"""The variable with the address at which the processes of a worker listen for links."""


# What the driver says.


@dataclass(frozen=True, slots=True)
class Assignment:
    """The first message to a process: which part it is, and in which run of the program."""

    part: str
    program: Launch
    earlier: tuple[Outcome | Failure | None, ...]
    """What the earlier runs of the program returned or raised, which the process does not repeat."""
    run_id: str
    began: TimeBase
    """When the clock of the run began, by the clock of the driver."""
    interests: dict[str, Any] | None = None
    """What the watchers of the driver want to know of the run (`forwarding`); None if there are none."""


@dataclass(frozen=True, slots=True)
class StartPart:
    """Start the process of a part; to an agent."""

    part: str
    number: int
    """Which start it is, for the answer."""
    gpus: int | tuple[int, ...] | None = None
    cpus: int | tuple[int, ...] | None = None
    may_return: bool = False
    """Whether it is started again if it is lost: a host that is cut off for a while is wanted back."""
    environment: dict[str, str] = field(default_factory=dict)
    """The variables of headrace that the driver has."""


@dataclass(frozen=True, slots=True)
class EndPart:
    """End the process of a part at once; to an agent."""

    part: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The driver does not use an agent, for this reason."""

    text: str


@dataclass(frozen=True, slots=True)
class RunOver:
    """The run is over; to an agent, for which its connection would else end because the driver is lost."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect the links of these flows: each has an epoch, and the process of its receiver listens there."""

    ends: tuple[tuple[str, int, Address], ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """A part is lost: its process has ended or is frozen, or its host is cut off. Its links may not end by
    themselves.

    With a flow, only the link of that flow and this epoch is lost, as the part itself has noticed.
    """

    part: str
    flow: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class EndFlow:
    """Let a flow end whose link of this epoch is lost: the part at its other end has ended for good."""

    flow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The runs of all parts are over: end the process. Before, another part may read what this one has sent."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run, as `stop_execution` does."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Say again whether nothing can run, in the answer to this wave of questions."""

    wave: int


@dataclass(frozen=True, slots=True)
class EndIdle:
    """No part can run any more, and nothing is under way: do what comes next (`PartIdleness.end`).

    Attributes
    ----------
    stage
        What is done next.
    """

    stage: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Leave the program, as by Ctrl-C, because the run ends before it began here."""


@dataclass(frozen=True, slots=True)
class Call:
    """Do something, and answer when it is done.

    ``"progress"``: say what the part has done. ``"set_value"``: set a value of an operator. ``"pause"``: pause, so
    that nothing computes, or go on. ``"drain"``: end the sources of the part, and compute what is under way.
    """

    number: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class TellTime:
    """The answer to `AskTime`: the time of the driver."""

    asked: int
    answered: int


# What a process says.


@dataclass(frozen=True, slots=True)
class Composed:
    """The process has composed the program."""

    description: dict[str, str]
    address: Address
    """Where it listens for links."""
    process: int
    """Its number on its host."""


@dataclass(frozen=True, slots=True)
class Started:
    """Every operator of the part has started."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The process is alive, with what is wrong with its operators, in words."""

    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The part at the other end of a flow is lost to this one, as their link says, and may well be alive."""

    flow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Printed:
    """What processes have written to standard output (1) or standard error (2), in whole lines; from an agent."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing can run in the part unless a link brings something."""

    report: IdleReport
    wave: int = 0
    """The question that it answers, if it was asked."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call has returned."""

    number: int
    result: Any = None


@dataclass(frozen=True, slots=True)
class AskTime:
    """Say at once what time it is: the clock of the process is another one."""

    asked: int


@dataclass(frozen=True, slots=True)
class AtRisk:
    """So many messages of a flow were answered that are lost if this part is, and one of the holders."""

    flow: str
    count: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of the run: its graph, and then what has happened (`forwarding`)."""

    content: bytes
    clock: ClockOffset
    """What is added to its times to have those of the driver."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The run of the part is over."""

    outcome: Outcome | None
    failure: Failure | None = None
    progress: PartProgress | None = None
    """What the part has done, and what its ends of flows have seen; None if it did not run."""


@dataclass(frozen=True, slots=True)
class Starting:
    """A process is being started; from an agent, which is alive."""

    part: str
    number: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A process has ended, or could not be started; from an agent."""

    part: str
    number: int
    how: str
    status: int = 0
    """The status of the process, less than 0 if a signal has ended it."""
