"""A random program as plain data: stages, the flows between them, changes, and how it is run.

`making` makes one from a seed, `building` makes an application of it, `model` says what it must do. The text of a
program is Python that makes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any


@dataclass
class Port:
    """An input of a stage.

    Attributes
    ----------
    sources
        The stages that send to it: ``"s0"`` is the output ``out`` of s0, ``"s0.failed"`` that of its dead letters.
    size
        1: one message; more: a batch; 0: one message of each flow.
    least
        How many messages a batch needs; 0: the input is optional.
    places
        How many messages wait, if the flows say so.
    """

    name: str
    sources: list[str] = field(default_factory=list)
    size: int = 1
    least: int | None = None
    policy: str = "FAULT"
    places: int | None = None

    @property
    def limit(self) -> int:
        """How many messages of one queue may wait."""
        return self.places or max(self.size, 1)

    @property
    def needs(self) -> int:
        """How many messages a compute needs."""
        return max(self.size, 1) if self.least is None else self.least


@dataclass
class Join:
    """How a stage joins its inputs; times are those of the sources' timestamps.

    `rule` is ``"aligned"``, ``"reference"`` (of the first input), ``"window"``, ``"reuse"`` (the last input only
    follows, with what arrived last), ``"latest"`` (the same, by timestamps), or ``"rate"``.
    """

    rule: str
    tolerance: int = 0
    wait: int | None = None
    length: int = 0
    step: int = 0
    lateness: int = 0


@dataclass
class Stage:
    """An operator.

    Attributes
    ----------
    kind
        ``"source"``, ``"step"``, ``"yields"`` (a generator, with or without an input), ``"async"``, ``"feed"`` or
        ``"results"``.
    emits
        How many messages a compute sends.
    count, period, timeout
        Of its conditions; 0: none.
    takes
        How long a compute takes, in the time of the run.
    stamp, delay
        The time between two timestamps of a source, and how many periods it waits before it sends anything.
    fails
        How often the computes of some messages fail. Without `retries` and `on_error`, an error ends the run.
    after
        The stages that it runs after, without data.
    named
        Attributes that the operator has beside those that headrace knows.
    captured, on_processes
        Whether it is in a captured segment, or has replicas in processes; nobody sees what it does there.
    """

    name: str
    kind: str = "step"
    ports: list[Port] = field(default_factory=list)
    emits: int = 1
    count: int = 0
    period: int = 0
    timeout: int = 0
    takes: int = 0
    stamp: int = 0
    delay: int = 0
    join: Join | None = None
    workers: int = 1
    fails: int = 0
    on_error: str = ""
    retries: int = 0
    sends_first: bool = False
    ends: bool = False
    routes: bool = False
    after: list[str] = field(default_factory=list)
    by_port: bool = False
    named: str = ""
    group: str = ""
    captured: bool = False
    on_processes: bool = False

    @property
    def is_source(self) -> bool:
        """Whether nothing is sent to it."""
        return not self.after and not any(port.sources for port in self.ports)

    @property
    def is_window(self) -> bool:
        """Whether it joins messages of one input."""
        return self.join is not None and self.join.rule == "window"

    @property
    def is_pure(self) -> bool:
        """Whether what it sends depends on what it received in the same compute only."""
        return not (
            self.is_source
            or (self.join is not None and self.join.rule not in ("aligned", "window"))
            or (self.join is not None and self.join.step not in (0, self.join.length))
            or any(port.policy == "LATEST" or port.least == 0 for port in self.ports)
            or self.timeout
            or not self.ports
        )

    def port(self, name: str) -> Port:
        """Return an input by its name."""
        return next(port for port in self.ports if port.name == name)


@dataclass
class Change:
    """A change of the graph, asked for in a compute of a stage.

    `what` is ``"toggle"`` (from that compute on, a new sink is connected or disconnected in each),
    ``"attach"`` (a new sink behind a stage), ``"detach"`` (a flow to a stage goes, or all flows to an input with
    several queues), ``"again"`` (they go and come back at once) or ``"stop"`` (a stage ends).

    Attributes
    ----------
    drops
        Whether the new sink has a queue that drops.
    is_brief
        Whether the new sink has a queue for each flow, and is disconnected in the same compute.
    """

    at: str
    turn: int
    what: str
    stage: str = ""
    drops: bool = False
    is_brief: bool = False


@dataclass
class Program:
    """A program, and how it is run.

    Attributes
    ----------
    scheduler
        ``"greedy"``, ``"event-based"`` or ``"default"``.
    block
        How a program with feeds runs: ``"drain"`` takes all results, ``"leave"`` leaves the block when all is put,
        ``"raise"`` leaves it by Ctrl-C, and ``"twice"`` too, with another one while operators are stopped.
    stop, pause
        The stage and the turn in which `stop_execution` is called, or the run is paused, for some steps.
    settings
        Live parameters that are set; `what` is the value.
    records
        Whether the messages of all outputs are recorded.
    calls
        Whether what is put into feeds are calls, which are answered.
    plays
        Whether the run is a replay of what the sources sent in another one.
    """

    seed: int
    stages: list[Stage] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    scheduler: str = "greedy"
    workers: int = 1
    clock: str = "virtual"
    max_messages: int = 0
    duration: int = 0
    track: bool = False
    block: str = ""
    stop: tuple[str, int] | None = None
    pause: tuple[str, int] | None = None
    settings: list[Change] = field(default_factory=list)
    records: bool = False
    calls: bool = False
    plays: bool = False

    def stage(self, name: str) -> Stage:
        """Return a stage by its name."""
        return next(stage for stage in self.stages if stage.name == name)

    def flows(self) -> Iterator[tuple[str, Stage, Port]]:
        """Yield each flow: its source, and the stage and input that it leads to."""
        for stage in self.stages:
            for port in stage.ports:
                for source in port.sources:
                    yield source, stage, port

    def behind(self, source: str) -> list[tuple[Stage, Port]]:
        """Return the inputs that an output leads to."""
        return [(stage, port) for name, stage, port in self.flows() if name == source]

    def goals(self) -> list[tuple[str, str]]:
        """Return the ends of the paths that have a goal, if it is tracked: from each source to a sink behind it."""
        found = []
        for stage in self.stages if self.track else ():
            names = [stage.name] * stage.is_source
            for name in names:
                names += [each.name for each, _ in self.behind(name) if each.name not in names]
            if len(names) > 1:
                found.append((self.path(stage), self.path(self.stage(names[-1]))))
        return found

    def path(self, stage: Stage) -> str:
        """Return the name of the operator of a stage in its application."""
        return f"{stage.group}.{stage.name}" if stage.group else stage.name

    def __str__(self) -> str:
        return text_of(self)


def text_of(thing: Any) -> str:
    """Return Python that makes a thing, without what is as by default."""
    if isinstance(thing, list):
        return f"[{', '.join(map(text_of, thing))}]"
    if not is_dataclass(thing) or isinstance(thing, type):
        return repr(thing)
    plain = type(thing)(*([""] if "name" in {f.name for f in fields(thing)} else _firsts(thing)))
    given = [
        f"{f.name}={text_of(getattr(thing, f.name))}"
        for f in fields(thing)
        if getattr(thing, f.name) != getattr(plain, f.name)
    ]
    return f"{type(thing).__name__}({', '.join(given)})"


def _firsts(thing: Any) -> list[Any]:
    return {"Program": [None], "Change": ["", None, ""], "Join": [""]}[type(thing).__name__]


def is_orderly(program: Program) -> bool:
    """Return whether what each stage receives is the same in every run, under every scheduler."""
    return not (
        program.changes
        or program.stop
        or program.duration
        or program.block in ("leave", "raise", "twice")
        or any(
            (stage.join is not None and (stage.join.wait is not None or stage.join.rule == "reuse"))
            or stage.timeout
            or (stage.fails and not (stage.retries or stage.on_error))
            or (stage.ends and len(stage.ports) > 1)  # what is left where it ends
            for stage in program.stages
        )
        or any(
            port.policy != "FAULT"
            or port.least is not None
            or (len(port.sources) > 1 and port.size)
            or (port.size > 1 and port.limit > port.size)  # a batch has what waits there
            for stage in program.stages
            for port in stage.ports
        )
        or _is_cut_short(program)
    )


def is_capturable(program: Program, stage: Stage) -> bool:
    """Return whether a segment may have a stage: it computes each message by itself, from nothing else."""
    plain = Stage(stage.name, ports=stage.ports, named=stage.named)
    return (
        stage == plain
        and len(stage.ports) == len(stage.ports[0].sources) == stage.ports[0].size == 1
        and "." not in stage.ports[0].sources[0]
        and not any(stage.name in other.after for other in program.stages)
        and not any(
            stage.name in (change.at, change.stage)
            or (
                change.stage and any(stage.name in port.sources for port in program.stage(change.stage).ports)
            )
            for change in program.changes
        )
        and "loop" not in features_of_stage(program, stage)
    )


def on_device(program: Program) -> Program:
    """Return a program whose messages are frames of a device, in its time."""
    return replace(program, clock="device", records=False)


def with_plan(program: Program) -> Program | None:
    """Return a program on a device for which there can be a plan, or None: a plan has no replicas."""
    return None if any(stage.workers > 1 for stage in program.stages) else on_device(program)


def with_calls(program: Program) -> Program | None:
    """Return a program whose feeds take calls, or None if it has none, or does not wait until all is answered."""
    feeds = any(stage.kind == "feed" for stage in program.stages)
    return replace(program, calls=True) if feeds and program.block == "drain" else None


def with_replay(program: Program) -> Program | None:
    """Return a program whose sources are played, or None if it changes, or exchanges frames with its block."""
    if program.changes or program.block or not any(stage.is_source for stage in program.stages):
        return None
    settings = [each for each in program.settings if not program.stage(each.stage).is_source]
    return replace(program, plays=True, records=False, settings=settings)


def with_segment(program: Program) -> Program | None:
    """Return a program on a device whose longest chain of stages is captured, or None if none can be."""
    chains: list[list[Stage]] = []
    for stage in program.stages:
        if not is_capturable(program, stage):
            continue
        source = stage.ports[0].sources[0]
        before = next((each for each in chains if each[-1].name == source), None)
        if before is not None and len(program.behind(source)) == 1 and stage.ports[0].policy == "FAULT":
            before.append(stage)
        else:
            chains.append([stage])
    if not chains:
        return None
    first, *rest = max(chains, key=len)
    captured = {first.name: replace(first, captured=True)}
    for stage in rest:  # a segment has no queues
        captured[stage.name] = replace(stage, captured=True, ports=[replace(stage.ports[0], places=None)])
    return replace(on_device(program), stages=[captured.get(each.name, each) for each in program.stages])


def _is_cut_short(program: Program) -> bool:
    """Return whether a producer may have to end because a stage behind it has."""
    return any(stage.count and not stage.is_source for stage in program.stages)


# What can be combined: of an operator, and of a run. A name is that of the table in CONTRIBUTING.md.
def features_of_stage(program: Program, stage: Stage) -> set[str]:
    """Return the features that a stage has."""
    ports = [port for port in stage.ports if port.sources]
    found = {
        "join by time": stage.join is not None and stage.join.rule != "window",
        "window": stage.join is not None and stage.join.rule == "window",
        "batch": any(port.size > 1 for port in ports),
        "several flows, several queues": any(port.size == 0 for port in ports),
        "several flows, one queue": any(len(port.sources) > 1 and port.size for port in ports),
        "POP": any(port.policy == "POP" for port in ports),
        "REJECT": any(port.policy == "REJECT" for port in ports),
        "LATEST": any(port.policy == "LATEST" for port in ports),
        "optional input": any(port.least == 0 for port in stage.ports),
        "timeout": bool(stage.timeout),
        "count": bool(stage.count),
        "period": bool(stage.period),
        "replicas": stage.workers > 1,
        "retry": bool(stage.retries),
        "skip": stage.on_error == "skip",
        "restart": stage.on_error == "restart",
        "dead letter": stage.on_error == "dead_letter",
        "generator": stage.kind == "yields",
        "async function": stage.kind == "async",
        "end": stage.ends,
        "order": bool(stage.after),
        "chosen flows": stage.routes,
        "loop": any(
            source == stage.name or _comes_back(program, stage, source)
            for port in ports
            for source in port.sources
        ),
        "metadata by port": stage.by_port,
        "subgraph": bool(stage.group),
        "captured segment": stage.captured,
        "feed": stage.kind == "feed",
        "results": stage.kind == "results",
    }
    return {name for name, has in found.items() if has}


def features_of_run(program: Program) -> set[str]:
    """Return the features of the run of a program."""
    found = {
        "changes": bool(program.changes),
        "stop": program.stop is not None,
        "max_messages": bool(program.max_messages),
        "duration": bool(program.duration),
        "running()": bool(program.block),
        "tracking": program.track,
        "pause and step": program.pause is not None,
        "live parameter": bool(program.settings),
        "recording": program.records,
        "event-based scheduler": program.scheduler == "event-based",
        "default scheduler": program.scheduler == "default",
        "real time": program.clock == "real",
    }
    return {name for name, has in found.items() if has}


def _comes_back(program: Program, stage: Stage, source: str) -> bool:
    seen: set[str] = set()
    names = [source.partition(".")[0]]
    while names:
        name = names.pop()
        if name == stage.name:
            return True
        if name not in seen:
            seen.add(name)
            before = program.stage(name)
            names += [each.partition(".")[0] for port in before.ports for each in port.sources]
    return False


def pairs_of(program: Program) -> set[frozenset[str]]:
    """Return the pairs of features that a program combines: in one operator, or of an operator and its run."""
    run = features_of_run(program)
    pairs = {frozenset({one, other}) for one in run for other in run if one != other}
    for stage in program.stages:
        own = features_of_stage(program, stage)
        pairs |= {frozenset({one, other}) for one in own for other in own | run if one != other}
    return pairs
