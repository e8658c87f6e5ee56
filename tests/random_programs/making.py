"""Random programs by seed, and programs with features that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from tests.random_programs.program import Change, Join, Port, Program, Stage, features_of_stage

# Features of an operator that `make` gives at random, and how often; the others come by themselves.
CHANCES = {
    "batch": 2,
    "several flows, several queues": 1,
    "several flows, one queue": 1,
    "POP": 1,
    "REJECT": 1,
    "LATEST": 1,
    "optional input": 1,
    "timeout": 1,
    "join by time": 3,
    "window": 1,
    "count": 1,
    "period": 2,
    "replicas": 2,
    "retry": 2,
    "skip": 1,
    "restart": 1,
    "dead letter": 1,
    "generator": 2,
    "async function": 2,
    "end": 2,
    "order": 1,
    "chosen flows": 1,
    "loop": 1,
    "metadata by port": 1,
    "subgraph": 2,
}
RUN_CHANCES = {
    "changes": 3,
    "stop": 1,
    "max_messages": 1,
    "duration": 1,
    "running()": 3,
    "tracking": 3,
    "pause and step": 2,
    "live parameter": 2,
    "recording": 1,
    "event-based scheduler": 6,
    "default scheduler": 3,
    "real time": 2,
}
# Features of a run that change nothing else of a program; so they have random numbers of their own.
MORE = ("pause and step", "live parameter", "recording")
# Features of an operator of which each program has at most one: they say of what kind it is.
KINDS = ("generator", "async function", "feed", "results")
# What a random program does not ask of one operator: it is refused, or has no meaning. The table says which.
APART = [
    ({"generator", "async function", "feed", "results"}, {"generator", "async function", "feed", "results"}),
    (
        {"generator", "async function"},
        {
            "several flows, several queues",
            "timeout",
            "end",
            "join by time",
            "metadata by port",
            "optional input",
        },
    ),
    ({"generator", "async function"}, {"retry", "skip", "restart", "dead letter", "window"}),
    (
        {"replicas"},
        {"retry", "dead letter", "join by time", "window", "async function", "order", "chosen flows"},
    ),
    (
        {"replicas"},
        {"loop", "LATEST", "optional input", "timeout", "several flows, one queue", "generator", "restart"},
    ),
    (
        {"join by time", "window"},
        {"batch", "LATEST", "timeout", "optional input", "several flows, several queues"},
    ),
    ({"join by time"}, {"window", "several flows, one queue", "loop"}),
    (
        {"loop"},
        {"batch", "POP", "REJECT", "LATEST", "timeout", "window", "chosen flows", "subgraph", "dead letter"},
    ),
    (
        {"loop"},
        {"several flows, several queues", "skip", "restart", "count", "generator", "async function", "order"},
    ),
    ({"several flows, several queues"}, {"POP", "REJECT", "LATEST", "optional input", "timeout", "batch"}),
    ({"several flows, one queue"}, {"LATEST"}),
    ({"POP"}, {"REJECT", "LATEST"}),
    ({"REJECT"}, {"LATEST"}),
    (
        {"LATEST"},
        {"batch", "timeout", "retry", "dead letter", "restart", "skip", "generator", "async function"},
    ),
    ({"timeout"}, {"batch", "optional input", "period", "count"}),
    ({"optional input"}, {"period"}),
    ({"skip"}, {"restart", "dead letter"}),
    ({"restart"}, {"dead letter"}),
    (
        {"retry", "skip", "restart", "dead letter"},
        {"timeout", "optional input", "several flows, several queues"},
    ),
    ({"retry", "skip", "restart", "dead letter"}, {"order", "chosen flows", "join by time", "window"}),
    ({"order"}, {"LATEST", "optional input", "timeout", "join by time", "window", "end", "batch"}),
    ({"order"}, {"subgraph", "POP", "REJECT", "several flows, one queue", "several flows, several queues"}),
    (
        {"chosen flows"},
        {"subgraph", "end", "generator", "async function", "retry", "skip", "restart", "dead letter"},
    ),
]


def can_go_together(one: str, other: str) -> bool:
    """Return whether `make` gives both features to one operator."""
    return not any((one in a and other in b) or (other in a and one in b) for a, b in APART if one != other)


def make(
    seed: int, of_stage: Iterable[str] = (), of_run: Iterable[str] = (), is_strict: bool = True
) -> Program:
    """Return the program of a seed: one of its operators has some features, and its run has others.

    If it is not strict, the features are given to the operator although they do not go together.
    """
    return _Making(seed, set(of_stage), set(of_run), is_strict).make()


class _Making:
    def __init__(self, seed: int, of_stage: set[str], of_run: set[str], is_strict: bool) -> None:
        self.random, self.more = Random(f"program {seed}"), Random(f"more of program {seed}")
        self.program = Program(seed)
        self.of_stage, self.of_run, self.is_strict = of_stage, of_run, is_strict
        self.private: set[str] = set()  # stages that nothing else is connected to

    def make(self) -> Program:
        random, program = self.random, self.program
        self._choose_run()
        for _ in range(random.choice([1, 1, 2, 3])):
            self.add_source()
        focus = random.randrange(3)
        for place in range(random.randrange(focus + 1, 6)):
            self.add_stage(self.of_stage if place == focus else self._some_features())
        self._add_sinks()
        for source, _, port in program.flows():
            emits = program.stage(source.partition(".")[0]).emits
            if port.limit < emits and port.policy != "LATEST":
                port.places = emits
        self._add_changes()
        if program.block:  # such a run takes no limits
            program.max_messages = program.duration = 0
        if program.block and not any(stage.kind in ("feed", "results") for stage in program.stages):
            program.block = "leave" if program.block == "drain" else program.block
        if not self.of_stage and Random(f"error {program.seed}").random() < 0.05:
            stage = random.choice([stage for stage in program.stages if stage.kind in ("step", "source")])
            if stage.workers == 1 and not (stage.is_source or stage.retries or stage.on_error):
                stage.fails = 1  # which ends the run
        if "stop" in self.of_run:
            program.stop = (
                random.choice(
                    [stage.name for stage in program.stages if stage.kind == "step" and stage.workers == 1]
                ),
                random.randrange(1, 9),
            )
        self._add_more()
        return program

    def _add_more(self) -> None:
        """Add what changes no message."""
        more, program = self.more, self.program
        program.records = "recording" in self.of_run
        stages = [
            stage for stage in program.stages if stage.kind in ("step", "source") and stage.workers == 1
        ]
        if "pause and step" in self.of_run:
            program.pause = more.choice(stages).name, more.randrange(1, 6)
        if "live parameter" in self.of_run:
            at = more.choice(stages).name
            program.settings = [Change(at, turn, "set", more.choice(stages).name) for turn in (2, 4)]

    def _choose_run(self) -> None:
        random, program = self.random, self.program
        if not self.of_run and not self.of_stage:
            chances = {name: self.more if name in MORE else random for name in RUN_CHANCES}
            self.of_run = {
                name for name, chance in RUN_CHANCES.items() if chances[name].randrange(12) < chance
            }
        of_run = self.of_run
        if "event-based scheduler" in of_run:
            program.scheduler, program.workers = "event-based", random.choice([2, 3])
        elif "default scheduler" in of_run:
            program.scheduler = "default"
        program.clock = "real" if "real time" in of_run else "virtual"
        program.track = "tracking" in of_run
        program.max_messages = random.randrange(1, 9) if "max_messages" in of_run else 0
        program.duration = random.randrange(1, 90) if "duration" in of_run else 0
        if "running()" in of_run:  # such a run takes no limits
            program.max_messages = program.duration = 0
            program.block = random.choice(["drain", "drain", "leave", "raise"])
            if program.block == "raise" and Random(f"twice {program.seed}").random() < 0.5:
                program.block = "twice"

    def _some_features(self) -> set[str]:
        chosen: set[str] = set()
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            (name,) = self.random.choices([*CHANCES], weights=[*CHANCES.values()])
            if all(can_go_together(name, other) for other in chosen):
                chosen.add(name)
        return chosen

    def _name(self) -> str:
        return f"s{len(self.program.stages)}"

    def add_source(self, count: int = 0, emits: int = 0) -> str:
        """Add a source, and return its name."""
        random, program = self.random, self.program
        if program.block and not count and random.random() < 0.6:
            stage = Stage(self._name(), "feed", count=0)
            program.stages.append(stage)
            return stage.name
        kind = "source" if count else random.choice(["source", "source", "source", "yields", "async"])
        stage = Stage(self._name(), kind, count=count or random.randrange(1, 16))
        stage.emits = emits or (random.choice([1, 1, 1, 2]) if kind == "source" else 1)
        stage.period = random.choice([0, 0, 5, 10])
        if kind == "source":
            stage.named = random.choice(["", "", "", "feed", "results"])
            if random.random() < 0.2:
                stage.ports = [Port("a", least=0)]
            if stage.emits == 1:
                stage.stamp = random.choice([0, 5, 10])
                stage.delay = random.choice([0, 0, 4]) if stage.period else 0
        program.stages.append(stage)
        return stage.name

    def _sources(
        self, count: int = 1, is_distinct: bool = False, test: Callable[[Stage], bool] = lambda _: True
    ) -> list[str]:
        """Return stages that an input may be connected to; a source is added where there is none."""
        names = [
            stage.name
            for stage in self.program.stages
            if stage.kind != "results"
            and stage.name not in self.private
            and test(stage)
            and not (stage.ports and stage.ports[-1].name == "back")
        ]
        while len(names) < (count if is_distinct else 1):
            names.append(self.add_source(count=self.random.randrange(1, 16), emits=1))
        return self.random.sample(names, count) if is_distinct else self.random.choices(names, k=count)

    def add_stage(self, wanted: set[str]) -> Stage:
        """Add a stage with features, and return it."""
        random, program = self.random, self.program
        stage = Stage("")
        if "generator" in wanted or "async function" in wanted:
            stage.kind = "yields" if "generator" in wanted else "async"
        if {"feed", "results"} & wanted:
            stage.kind = "feed" if "feed" in wanted else "results"
            program.block = program.block or "drain"
        if (
            "join by time" in wanted
            and stage.kind == "step"
            and not wanted & {"loop", "several flows, one queue"}
        ):
            self._join(stage)
        elif stage.kind != "feed":
            names = "ab" if {"timeout", "optional input", "LATEST"} & wanted and stage.kind == "step" else "a"
            if stage.kind == "step" and not wanted & {"window", "order", "dead letter", "loop"}:
                names = random.choice([names, "ab"])
            stage.ports = [Port(name, self._sources()) for name in names]
            if len(names) > 1 and random.random() < 0.6:  # else its sources may wait for each other
                stage.ports[1].sources = random.choice(
                    [stage.ports[0].sources, [self.add_source(10, emits=1)]]
                )[:]
        ports = stage.ports
        if "window" in wanted and ports and "loop" not in wanted:
            length = random.choice([2, 3])
            stage.join = Join("window", length=length, step=random.choice([0, 1]))
        if "several flows, several queues" in wanted and ports:
            ports[0].size, ports[0].sources = 0, self._sources(2, is_distinct=True)
        if "several flows, one queue" in wanted and ports:
            ports[0].sources = self._sources(2, is_distinct=True)
        if "batch" in wanted and ports:
            ports[0].size = random.choice([2, 3])
            ports[0].least = random.choice([None, 1, 2])
        for policy in ("POP", "REJECT", "LATEST"):
            if policy in wanted and ports:
                ports[-1].policy = policy
                if policy == "LATEST" and stage.join is None:
                    ports[-1].least = 0
        if ports and ports[0].size > 1:
            for port in ports[1:]:  # one source may feed both
                port.places = ports[0].size
        if stage.join is not None and "REJECT" in wanted and "join by time" in wanted:
            # The messages of one input are there at once.
            stage.join = Join("aligned")
            stage.takes, stage.ports = 0, ports[:2]
            ports = stage.ports
            ports[1].policy, ports[1].places = "REJECT", random.choice([2, 3])
            first, other = (program.stage(port.sources[0]) for port in ports)
            first.stamp = other.stamp = first.period = 5
            first.delay = other.delay = other.period = 0
        if "optional input" in wanted and ports:
            ports[-1].least = 0
        if ports and ports[0].size and stage.kind != "results":
            for port in ports:
                if (
                    port.policy != "LATEST"
                    and not port.places
                    and not (stage.join is not None and random.random() < 0.5)
                ):
                    port.places = random.choice([None, None, port.size + 2, 5])
        stage.timeout = (
            random.choice([15, 40])
            if "timeout" in wanted and "loop" not in wanted and stage.kind == "step"
            else 0
        )
        if stage.timeout:
            for port in ports:  # it computes until its sources have ended, so nothing else may hold them up
                port.places, port.sources = 4, [self.add_source(random.randrange(1, 16), emits=1)]
                self.private.add(port.sources[0])
        is_endless = bool(ports) and all(port.least == 0 for port in ports)
        stage.count = random.randrange(1, 9) if "count" in wanted or is_endless else 0
        if "period" in wanted:
            stage.period = random.choice([7, 12, 30])
        stage.workers = random.choice([2, 3]) if "replicas" in wanted else 1
        stage.retries = random.choice([1, 2]) if "retry" in wanted else 0
        for policy in ("skip", "restart", "dead letter"):
            if policy in wanted:
                stage.on_error = policy.replace(" ", "_")
        if stage.retries or stage.on_error:
            stage.fails = (
                random.randrange(1, stage.retries + 1) if not stage.on_error else random.choice([1, 2, 3])
            )
            stage.sends_first = stage.kind == "step" and random.random() < 0.3 and not stage.ends
        stage.ends = "end" in wanted
        if "order" in wanted:
            stage.after = self._sources(
                1,
                test=lambda each: (
                    each.kind in ("source", "step")
                    and not each.on_error
                    and not each.routes
                    and each.workers == 1
                    and not each.group
                ),
            )
            if random.random() < 0.5 and stage.kind == "step" and len(wanted) == 1:
                stage.ports = []
        stage.by_port = "metadata by port" in wanted
        stage.emits = (
            random.choice([1, 1, 1, 2]) if stage.kind in ("step", "yields") and not stage.count else 1
        )
        if stage.kind == "yields" and stage.count and Random(f"yields {program.seed}").random() < 0.5:
            stage.emits = 2
        if stage.kind == "step" and random.random() < 0.15 and not stage.join:
            stage.takes = random.choice([3, 25])
        if "subgraph" in wanted or (
            random.random() < 0.1 and not self.of_stage and not wanted & {"order", "chosen flows", "loop"}
        ):
            stage.group = random.choice(["g", "h"])
        if stage.kind == "step" and random.random() < 0.1:
            stage.named = random.choice(["feed", "results"])
        stage.name = self._name()
        if "loop" in wanted:
            self._close_loop(stage)
            return stage
        program.stages.append(stage)
        if "chosen flows" in wanted:
            stage.routes = True
            self.private.add(stage.name)
            for _ in range(2):
                program.stages.append(Stage(self._name(), ports=[Port("a", [stage.name])]))
        return stage

    def _join(self, stage: Stage) -> None:
        random = self.random

        rule = random.choice(["aligned", "aligned", "reference", "reuse", "latest", "rate"])
        names = []
        step = random.choice([5, 10])
        is_even, delay = random.random() < 0.5, random.choice([0, 0, 4])
        for _ in range(random.choice([2, 2, 3]) if rule in ("aligned", "reference") else 2):
            name = self.add_source(count=random.randrange(4, 20), emits=1)
            source = self.program.stage(name)
            source.stamp, source.delay = random.choice([5, 10, 7]), random.choice([0, 0, 0, 12])
            source.period = random.choice([0, source.stamp])
            if is_even:
                source.stamp, source.period, source.delay = step, step, delay
            names.append(name)
        wait = None
        if rule in ("aligned", "reference", "rate") and random.random() < 0.5:
            wait = random.choice([1, 5, 20])
        stage.join = Join(rule, random.choice([0, 3, 6]) if rule != "rate" else 20, wait)
        if rule == "rate":
            stage.join.step = random.choice([4, 10])
        if rule in ("aligned", "reference") and random.random() < 0.2:
            stage.join.lateness = 10
        is_slow = is_even and wait is not None and rule == "aligned" and random.random() < 0.6
        if is_slow:  # it holds up its producers, whose messages are in time
            stage.join.tolerance = stage.join.lateness = 0
        stage.period = random.choice([13, 25]) if is_slow else 0
        stage.ports = [Port("abc"[place], [name]) for place, name in enumerate(names)]
        if random.random() < 0.7:
            self.private.update(names)
        if is_slow:
            for port in stage.ports:
                port.places = random.choice([None, 1, 2])

    def _close_loop(self, head: Stage) -> None:
        """Add the head of a loop, and stages from which messages come back to it."""
        random, program = self.random, self.program
        tokens = random.choice([1, 1, 2, 3])
        first = self.add_source(count=tokens, emits=1)
        program.stage(first).period = 0
        program.stage(first).delay = program.stage(first).stamp = 0
        head.name, head.emits, head.count = self._name(), 1, random.randrange(1, 15)
        head.takes = 0
        program.stages.append(head)
        last = head
        for _ in range(random.randrange(2)):
            last = Stage(self._name(), ports=[Port("a", [last.name])])
            program.stages.append(last)
        # It waits for room before it takes its own message.
        head.ports = [Port("back", [first, last.name], places=tokens + 1 + random.randrange(3))]

    def _add_sinks(self) -> None:
        random, program = self.random, self.program
        for stage in list(program.stages):
            outputs = [stage.name] * (stage.kind != "results")
            if stage.on_error == "dead_letter":
                outputs.append(f"{stage.name}.failed")
            for output in outputs:
                if program.behind(output) or stage.routes or random.random() < 0.15:
                    continue
                is_result = program.block and random.random() < 0.7 and "." not in output
                kind = "results" if is_result else "step"
                program.stages.append(Stage(self._name(), kind, [Port("a", [output])]))

    def _add_changes(self) -> None:
        random, program = self.random, self.program
        if "changes" not in self.of_run:
            return
        steps = [
            stage
            for stage in program.stages
            if stage.kind in ("step", "source")
            and stage.workers == 1
            and not stage.group
            and not stage.routes
        ]
        for _ in range(random.choice([1, 1, 2])):
            if not steps:
                return
            at, turn = random.choice(steps).name, random.randrange(1, 6)
            what = random.choice(["toggle", "toggle", "attach", "detach", "again", "stop"])
            can_change = [
                stage
                for stage in program.stages
                if not (
                    stage.group
                    or stage.workers > 1
                    or stage.join
                    or stage.timeout
                    or stage.kind == "results"
                    or stage.routes
                )
            ]
            targets = [
                stage.name
                for stage in can_change
                if what in ("attach", "stop")
                or (
                    stage.ports
                    and stage.ports[0].sources
                    and all(
                        program.stage(source.partition(".")[0]) in can_change
                        for source in stage.ports[0].sources[: None if stage.ports[0].size == 0 else 1]
                    )
                )
            ]
            if what == "toggle" or targets:
                program.changes.append(
                    Change(at, turn, what, random.choice(targets) if what != "toggle" else "")
                )
        if not program.changes:
            program.changes.append(Change(steps[0].name, 1, "toggle"))
        for place, change in enumerate(program.changes):
            if change.what == "attach":
                kind = Random(f"attach {program.seed} {place}").choice(["plain", "drops", "brief"])
                change.drops, change.is_brief = kind == "drops", kind == "brief"
        if sum(change.what == "toggle" for change in program.changes) > 1:
            program.changes = program.changes[:1]


def has_all(program: Program, wanted: set[str]) -> bool:
    """Return whether an operator of a program has all of some features."""
    return any(wanted <= features_of_stage(program, stage) for stage in program.stages)
