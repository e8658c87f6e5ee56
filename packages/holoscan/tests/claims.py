"""The claims of docs/holoscan-differences.md as programs: on the Holoscan SDK, through the layer, and on headrace.

    python -m packages.holoscan.tests.claims unconnected_input        what each of the three does
    python -m packages.holoscan.tests.claims --record                 run all, and write claims.json

The SDK is asked if ``ORACLE_PYTHON`` names an interpreter that has it; otherwise its recorded answer is shown.
A program leaves in `log` what a user would observe; an exception ends it and is logged by its type.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, load, logger, operator

HERE = Path(__file__).parent
RECORDED = HERE / "claims.json"
PACKAGES = {"holoscan": "the SDK", "layer": "through the layer", "headrace": "headrace"}
Program = Callable[[SimpleNamespace, list], Any]
CLAIMS: dict[str, Program] = {}


def claim(function: Program) -> Program:
    """Add a program to the table."""
    CLAIMS[function.__name__] = function
    return function


def source(sdk: Any, app: Any, count: int = 3, name: str = "source") -> Any:
    return counter(sdk)(app, sdk.CountCondition(app, count), name=name)


def sink(sdk: Any, app: Any, log: list, name: str = "sink") -> Any:
    return logger(sdk, log)(app, name=name)


def chain(sdk: Any, log: list, **arguments: Any) -> Any:
    """Return the application of a source and a sink that logs."""

    def compose(app: Any) -> None:
        app.add_flow(source(sdk, app), sink(sdk, app, log))

    return application(sdk, compose)


def configured(sdk: Any, log: list, text: str, look: Callable[[Any], Any]) -> None:
    """Read a configuration of this text, and log what `look` finds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "app.yaml"
        path.write_text(text)
        app = application(sdk, lambda app: None)
        app.config(str(path))
        log.append(look(app))


# What is the same.


@claim
def messages_arrive_in_order(sdk: Any, log: list) -> None:
    chain(sdk, log).run()


@claim
def a_tensor_map_arrives_as_a_dict(sdk: Any, log: list) -> None:
    import numpy as np

    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        o.emit({"a": np.arange(3, dtype=np.float32), "b": np.ones(2, np.uint8)}, "out")

    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        message = i.receive("in")
        log.append([isinstance(message, dict), sorted(message), message.get("missing")])
        log.append(np.asarray(message["a"]).tolist())

    def compose(app: Any) -> None:
        sender = operator(sdk, [], ["out"], send)(app, sdk.CountCondition(app, 1), name="s")
        app.add_flow(sender, operator(sdk, ["in"], [], look)(app, name="k"))

    application(sdk, compose).run()


@claim
def metadata_travels(sdk: Any, log: list) -> None:
    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        self.metadata["number"] = self.ticks
        o.emit(self.ticks, "out")

    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append([i.receive("in"), self.metadata["number"]])

    def compose(app: Any) -> None:
        app.enable_metadata(True)
        sender = operator(sdk, [], ["out"], send)(app, sdk.CountCondition(app, 2), name="s")
        app.add_flow(sender, operator(sdk, ["in"], [], look)(app, name="k"))

    application(sdk, compose).run()


@claim
def an_exception_comes_out_of_run(sdk: Any, log: list) -> None:
    def fail(self: Any, i: Any, o: Any, c: Any) -> None:
        raise KeyError("mine")

    def compose(app: Any) -> None:
        app.add_flow(source(sdk, app), operator(sdk, ["in"], [], fail)(app, name="k"))

    application(sdk, compose).run()


@claim
def every_scheduler_and_its_keywords(sdk: Any, log: list) -> None:
    for kind, keywords in (
        (sdk.GreedyScheduler, {"stop_on_deadlock": True, "check_recession_period_ms": 0.0}),
        (sdk.MultiThreadScheduler, {"worker_thread_number": 2, "stop_on_deadlock_timeout": 10}),
        (sdk.EventBasedScheduler, {"worker_thread_number": 2, "stop_on_deadlock_timeout": 10}),
    ):
        app = chain(sdk, log)
        app.scheduler(kind(app, name="s", **keywords))
        app.run()


# What is better.


@claim
def unconnected_input(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        both = operator(sdk, ["left", "right"], [], lambda self, i, o, c: log.append(i.receive("left")))
        app.add_flow(source(sdk, app), both(app, name="both"), {("out", "left")})

    application(sdk, compose).run()


@claim
def unconnected_output(sdk: Any, log: list) -> None:
    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        o.emit(self.ticks, "out")
        log.append(self.ticks)

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], ["out"], send)(app, sdk.CountCondition(app, 2), name="a"))

    application(sdk, compose).run()


@claim
def ambiguous_flow(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        both = operator(sdk, ["left", "right"], [], lambda self, i, o, c: log.append("ran"))
        app.add_flow(source(sdk, app), both(app, name="both"))

    application(sdk, compose).run()


@claim
def misspelled_flow(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(sdk, app), sink(sdk, app, log), {("out", "inn")})

    application(sdk, compose).run()


@claim
def unknown_port_in_receive(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        wrong = operator(
            sdk, ["in"], [], lambda self, i, o, c: log.append([i.receive("inn"), i.receive("in")])
        )
        app.add_flow(source(sdk, app, 1), wrong(app, name="k"))

    application(sdk, compose).run()


@claim
def unknown_port_in_emit(sdk: Any, log: list) -> None:
    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        o.emit(1, "outt")
        o.emit(2, "out")

    def compose(app: Any) -> None:
        wrong = operator(sdk, [], ["out"], send)(app, sdk.CountCondition(app, 1), name="s")
        app.add_flow(wrong, sink(sdk, app, log))

    application(sdk, compose).run()


@claim
def several_emits(sdk: Any, log: list) -> None:
    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        for number in range(3):
            o.emit(number, "out")

    def compose(app: Any) -> None:
        burst = operator(sdk, [], [("out", {}, None)], send)(app, sdk.CountCondition(app, 1), name="s")
        batch = operator(
            sdk, [("in", {"size": 3}, None)], [], lambda self, i, o, c: log.append(i.receive("in"))
        )
        app.add_flow(burst, batch(app, name="k"))

    application(sdk, compose).run()


@claim
def min_sum(sdk: Any, log: list) -> None:
    def setup(self: Any, spec: Any) -> None:
        for port in ("a", "b"):
            spec.input(port, size=4).condition(sdk.ConditionType.NONE)
        spec.multi_port_condition(
            kind=sdk.ConditionType.MULTI_MESSAGE_AVAILABLE,
            port_names=["a", "b"],
            sampling_mode="SumOfAll",
            min_sum=4,
        )

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        taken = 0
        for port in ("a", "b"):
            while (message := i.receive(port)) is not None:
                taken += len(message) if isinstance(message, tuple) else 1
        log.append(taken)

    def compose(app: Any) -> None:
        both = operator(sdk, [], [], take, setup=setup)(app, name="k")
        app.add_flow(source(sdk, app, 4, "one"), both, {("out", "a")})
        app.add_flow(source(sdk, app, 4, "two"), both, {("out", "b")})

    application(sdk, compose).run()
    log[:] = ["waits for 4" if min(log) >= 4 else "does not wait for 4"]


@claim
def a_logger_in_python(sdk: Any, log: list) -> None:
    class Mine(sdk.DataLoggerResource):
        def log_data(self, data: Any, unique_id: str, *args: Any, **kwargs: Any) -> bool:
            log.append([unique_id, data])
            return True

    def compose(app: Any) -> None:
        app.add_flow(source(sdk, app, 1), sink(sdk, app, []))

    app = application(sdk, compose)
    app.add_data_logger(Mine(app, name="mine"))
    app.run()


@claim
def a_dropping_queue(sdk: Any, log: list) -> None:
    """A producer is four times as fast as the consumer, whose queue drops the oldest message."""

    def compose(app: Any) -> None:
        fast = counter(sdk)(
            app,
            sdk.CountCondition(app, 8),
            sdk.PeriodicCondition(app, datetime.timedelta(milliseconds=10)),
            name="fast",
        )
        port = ("in", {"size": 1, "policy": sdk.IOSpec.QueuePolicy.POP}, None)
        slow = operator(sdk, [port], [], lambda self, i, o, c: log.append(i.receive("in")))
        pace = sdk.PeriodicCondition(app, datetime.timedelta(milliseconds=40))
        app.add_flow(fast, slow(app, pace, name="slow"))

    app = application(sdk, compose)
    app.scheduler(sdk.GreedyScheduler(app, clock=sdk.ManualClock(app, name="clock"), name="s"))
    app.run()
    log[:] = ["all arrive" if log == list(range(1, 9)) else "some are dropped"]


@claim
def acquisition_timestamps(sdk: Any, log: list) -> None:
    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        o.emit(1, "out", acq_timestamp=77)

    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append(i.get_acquisition_timestamp("in"))

    def compose(app: Any) -> None:
        first = operator(sdk, [], ["out"], send)(app, sdk.CountCondition(app, 1), name="s")
        middle = operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in"), "out"))(
            app, name="m"
        )
        app.add_flow(first, middle)
        app.add_flow(middle, operator(sdk, ["in"], [], look)(app, name="k"))

    application(sdk, compose).run()


@claim
def a_run_says_how_it_ended(sdk: Any, log: list) -> None:
    log.append(chain(sdk, []).run() is not None)


@claim
def dropped_messages_are_counted(sdk: Any, log: list) -> None:
    log.append(hasattr(chain(sdk, []), "dropped"))


@claim
def a_used_up_pool(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        pool = sdk.BlockMemoryPool(app, name="pool", storage_type=2, block_size=1024, num_blocks=1)

        def ask(self: Any, i: Any, o: Any, c: Any) -> None:
            pool.allocate(100, sdk.MemoryStorageType.SYSTEM)
            log.append(pool.allocate(100, sdk.MemoryStorageType.SYSTEM))

        app.add_operator(operator(sdk, [], [], ask)(app, sdk.CountCondition(app, 1), pool, name="a"))

    application(sdk, compose).run()


# What headrace refuses and the SDK lets pass.


def declared(
    sdk: Any, log: list, names: tuple[str, ...], setup: Callable[..., None], *args: Any, **given: Any
) -> None:
    """Run an operator with parameters, and log their values."""

    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append([getattr(self, name, "no attribute") for name in names])

    def compose(app: Any) -> None:
        made = operator(sdk, [], [], look, setup=setup)
        app.add_operator(made(app, sdk.CountCondition(app, 1), *args, name="a", **given))

    application(sdk, compose).run()


@claim
def undeclared_argument(sdk: Any, log: list) -> None:
    declared(sdk, log, ("known", "unknown"), lambda self, spec: spec.param("known", 1), known=2, unknown=3)


@claim
def a_value_of_another_type(sdk: Any, log: list) -> None:
    declared(sdk, log, ("gain",), lambda self, spec: spec.param("gain", 1.0), gain="high")


@claim
def a_required_parameter_without_a_value(sdk: Any, log: list) -> None:
    declared(sdk, log, ("needed",), lambda self, spec: spec.param("needed"))


@claim
def an_operator_that_is_never_connected(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        sink(sdk, app, log, "spare")
        app.add_flow(source(sdk, app), sink(sdk, app, log))

    application(sdk, compose).run()


@claim
def the_same_flow_twice(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        one, other = source(sdk, app), sink(sdk, app, log)
        app.add_flow(one, other)
        app.add_flow(one, other)

    application(sdk, compose).run()


@claim
def an_application_without_operators(sdk: Any, log: list) -> None:
    application(sdk, lambda app: None).run()
    log.append("returned")


@claim
def a_missing_section(sdk: Any, log: list) -> None:
    configured(sdk, log, "a:\n  x: 1\n", lambda app: app.kwargs("b"))


@claim
def an_empty_section(sdk: Any, log: list) -> None:
    configured(sdk, log, "a:\nb:\n  x: 1\n", lambda app: app.kwargs("a"))


@claim
def an_empty_configuration(sdk: Any, log: list) -> None:
    app = application(sdk, lambda app: None)
    app.config("")
    log.append(app.kwargs("a"))


@claim
def a_yaml_directive(sdk: Any, log: list) -> None:
    configured(sdk, log, "%YAML 1.2\n---\na:\n  x: 1\n", lambda app: app.kwargs("a"))


@claim
def values_of_yaml(sdk: Any, log: list) -> None:
    text = 'a:\n  quoted: "1"\n  octal: 010\n  grouped: 1_000\n  day: 2024-01-02\n  yes_: yes\n'
    configured(sdk, log, text, lambda app: sorted((k, repr(v)) for k, v in app.kwargs("a").items()))


# Silent differences.


@claim
def an_attribute_before_init(sdk: Any, log: list) -> None:
    class Early(sdk.Operator):
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.gain = 7
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            spec.param("gain", 1)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            log.append(self.gain)

    application(sdk, lambda app: app.add_operator(Early(app, sdk.CountCondition(app, 1), name="a"))).run()


@claim
def or_of_two_counts(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        terms = [sdk.CountCondition(app, 3, name="three"), sdk.CountCondition(app, 6, name="six")]
        either = sdk.OrConditionCombiner(app, terms=terms, name="or")
        ticks = operator(sdk, [], [], lambda self, i, o, c: log.append(self.ticks))
        app.add_operator(ticks(app, either, name="a"))

    application(sdk, compose).run()
    log[:] = [len(log)]


@claim
def kind_multi(sdk: Any, log: list) -> None:
    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(i.receive("in", kind="multi"))

    def compose(app: Any) -> None:
        app.add_flow(source(sdk, app, 2), operator(sdk, ["in"], [], look)(app, name="k"))

    application(sdk, compose).run()


@claim
def setup_of_a_resource(sdk: Any, log: list) -> None:
    class Settings(sdk.Resource):
        def setup(self, spec: Any) -> None:
            spec.param("gain", 5)

    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append([self.resource("settings").gain])

    def compose(app: Any) -> None:
        made = operator(sdk, [], [], look)
        app.add_operator(made(app, sdk.CountCondition(app, 1), Settings(app, name="settings"), name="a"))

    application(sdk, compose).run()


@claim
def a_resource_by_keyword(sdk: Any, log: list) -> None:
    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(sorted(self.resources))

    def compose(app: Any) -> None:
        made = operator(sdk, [], [], look, setup=lambda self, spec: spec.param("allocator"))
        pool = sdk.UnboundedAllocator(app, name="pool")
        app.add_operator(made(app, sdk.CountCondition(app, 1), allocator=pool, name="a"))

    application(sdk, compose).run()


@claim
def default_names(sdk: Any, log: list) -> None:
    class Named(sdk.Application):
        name = "mine"
        version = "1.2"

        def compose(self) -> None:
            pass

    class Plain(sdk.Application):
        def compose(self) -> None:
            log.append(operator(sdk)(self, sdk.CountCondition(self, 1)).name)

    log.append([Named().name, Named().version])
    app = Plain()
    log.append([app.name, sdk.GreedyScheduler(app).name])
    app.run()


@claim
def the_order_of_stop(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        def passes(self: Any, i: Any, o: Any, c: Any) -> None:
            o.emit(i.receive("in"), "out")

        def ends(self: Any) -> None:
            log.append(self.name)

        a = operator(sdk, [], ["out"], lambda s, i, o, c: o.emit(1, "out"), stop=ends)
        b = operator(sdk, ["in"], ["out"], passes, stop=ends)
        d = operator(sdk, ["in"], [], lambda s, i, o, c: i.receive("in"), stop=ends)
        steps = [a(app, sdk.CountCondition(app, 1), name="a"), b(app, name="b"), d(app, name="d")]
        app.add_flow(steps[0], steps[1])
        app.add_flow(steps[1], steps[2])

    application(sdk, compose).run()


@claim
def the_result_of_run_async(sdk: Any, log: list) -> None:
    log.append(chain(sdk, []).run_async().result() is None)


@claim
def threads_of_the_default_scheduler(sdk: Any, log: list) -> None:
    seen = set()

    def look(self: Any, i: Any, o: Any, c: Any) -> None:
        seen.add(threading.get_ident())
        i.receive("in")

    def compose(app: Any) -> None:
        app.add_flow(source(sdk, app), operator(sdk, ["in"], [], look)(app, name="k"))

    application(sdk, compose).run()
    log.append(len(seen))


@claim
def an_execution_port(sdk: Any, log: list) -> None:
    """A flow to an operator that declares no input: it runs after each compute of the other."""

    def compose(app: Any) -> None:
        first = operator(sdk, [], [], lambda self, i, o, c: log.append("first"))
        then = operator(sdk, [], [], lambda self, i, o, c: log.append("then"))
        app.add_flow(first(app, sdk.CountCondition(app, 2), name="f"), then(app, name="t"))

    application(sdk, compose).run()


# Types of errors.


@claim
def two_operators_of_one_name(sdk: Any, log: list) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(sdk, app, name="same"), sink(sdk, app, log, "same"))

    application(sdk, compose).run()


@claim
def a_configuration_file_that_is_missing(sdk: Any, log: list) -> None:
    app = chain(sdk, log)
    app.config("/nowhere/app.yaml")
    app.run()


# Running them.


def outcome(name: str, package: str) -> list[Any]:
    """Run one program on `headrace`, on `holoscan` or through the `layer`; return its log, as JSON has it."""
    log: list[Any] = []
    if package == "layer":
        from headrace_holoscan.alias import install, uninstall

        install()
    try:
        with redirect_stdout(io.StringIO()):
            CLAIMS[name](names("holoscan" if package == "layer" else package), log)
    except Exception as error:
        log.append(f"raised {kind_of(error)}")
    finally:
        if package == "layer":
            uninstall()
    return json.loads(json.dumps(log))  # type: ignore[no-any-return]


def kind_of(error: Exception) -> str:
    """Return the built-in type of an error, which a program would catch."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def names(package: str) -> SimpleNamespace:
    """Return the names that both systems share; a data logger in Python has its base elsewhere in headrace."""
    found = load(package)
    if not hasattr(found, "DataLoggerResource"):
        from headrace_holoscan.core import DataLoggerResource

        found.DataLoggerResource = DataLoggerResource
    return found


def on_the_sdk(name: str) -> Any:
    """Run one program on the SDK, in a process of its own."""
    command = [os.environ["ORACLE_PYTHON"], "-m", "packages.holoscan.tests.claims", name, "holoscan"]
    try:
        done = subprocess.run(command, cwd=HERE.parents[2], capture_output=True, text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return "never ends"
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME ")]
    return json.loads(lines[0][8:]) if lines else "died"


def main() -> None:
    match sys.argv[1:]:
        case ["--record", *chosen]:
            recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
            for name in chosen or CLAIMS:
                old = recorded.get(name, {}).get("holoscan")
                sdk = on_the_sdk(name) if "ORACLE_PYTHON" in os.environ else old
                recorded[name] = {"holoscan": sdk} | {
                    each: outcome(name, each) for each in ("layer", "headrace")
                }
            lines = [f"  {json.dumps(name)}: {json.dumps(recorded[name])}" for name in CLAIMS]
            RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        case [name, "holoscan"]:
            print("OUTCOME " + json.dumps(outcome(name, "holoscan")))
        case [name]:
            found = json.loads(RECORDED.read_text())[name]["holoscan"]
            sdk = on_the_sdk(name) if "ORACLE_PYTHON" in os.environ else found
            for package, words in PACKAGES.items():
                print(f"{words + ':':20}{sdk if package == 'holoscan' else outcome(name, package)}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
