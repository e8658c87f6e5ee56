"""The classes of a program for the SDK may use every name that the SDK's classes do not have."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from headrace.gpu import sim
from headrace_holoscan.conditions import CountCondition
from headrace_holoscan.core import Application, Condition, Fragment, Operator, Resource, Subgraph, Tracker
from headrace_holoscan.schedulers import GreedyScheduler
from tests.harness.own_names import WHEN, Names, check_kept, of_inner_class, undocumented

BASES = (Operator, Application, Fragment, Subgraph, Condition, Resource, GreedyScheduler)
# The names of the SDK's classes that headrace's classes document, too, or have in its place.
OF_PARTS = {
    "args",
    "description",
    "fragment",
    "id",
    "initialize",
    "name",
    "service",
    "setup",
    "spec",
    "add_arg",
}
OF_FRAGMENTS = {
    *("add_data_logger", "add_default_green_context_pool", "add_flow", "add_operator", "add_subgraph"),
    *(
        "application",
        "compose",
        "compose_graph",
        "config",
        "config_keys",
        "data_flow_tracker",
        "data_loggers",
    ),
    *("enable_metadata", "executor", "fragment", "from_config", "get_default_green_context_pool", "graph"),
    *("is_metadata_enabled", "kwargs", "make_thread_pool", "metadata_policy", "name", "register_service"),
    *("run", "run_async", "scheduler", "service", "set_dynamic_flows", "shutdown_async_executor", "start_op"),
    *("stop_execution", "subgraphs", "track"),
}
OF_THE_SDK: dict[Any, set[str]] = {
    Operator: OF_PARTS
    | {
        *("INPUT_EXEC_PORT_NAME", "OUTPUT_EXEC_PORT_NAME", "OperatorType", "add_dynamic_flow"),
        *("async_condition", "compute", "conditions", "enable_metadata", "execution_context"),
        *("find_all_flow_info", "find_flow_info", "get_data_flow_tracking_label", "is_metadata_enabled"),
        *("metadata", "metadata_policy", "next_flows", "operator_type", "queue_policy", "receiver"),
        *("resource", "resources", "start", "stop", "stop_execution", "transmitter"),
    },
    Fragment: OF_FRAGMENTS,
    Application: OF_FRAGMENTS
    | {"add_fragment", "argv", "description", "fragment_graph", "options", "track_distributed", "version"},
    Subgraph: OF_FRAGMENTS
    | {
        *("add_input_exec_interface_port", "add_input_interface_port", "add_interface_port"),
        *("add_output_exec_interface_port", "add_output_interface_port", "exec_interface_ports"),
        *("get_exec_interface_operator_port", "get_interface_operator_port", "instance_name"),
        *("interface_port_names", "interface_ports", "is_composed", "nested_subgraphs", "operators"),
        "set_composed",
    },
    Condition: OF_PARTS
    | {
        *("ConditionComponentType", "check", "condition_type", "notify_scheduler", "on_execute"),
        *("receiver", "transmitter", "update_state"),
    },
    Resource: OF_PARTS | {"ResourceType", "resource_type"},
    GreedyScheduler: OF_PARTS
    | {
        *("check_recession_period_ms", "clock", "gxf_cid", "gxf_cname", "gxf_context", "gxf_eid"),
        *(
            "gxf_initialize",
            "gxf_typename",
            "max_duration_ms",
            "stop_on_deadlock",
            "stop_on_deadlock_timeout",
        ),
    },
}


def program(names: Names) -> tuple[list[Any], list[int]]:
    """Run a program of all kinds of classes, and return its objects and what came out."""
    made: list[Any] = []
    taken: list[int] = []
    stage: Any = names.own(Operator)

    class Source(stage):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.output("out")
            self.sent = 0

        def compute(self, i: Any, o: Any, c: Any) -> None:
            self.use()
            self.sent += 1
            o.emit(self.sent, "out")

    class Scale(stage):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.param("factor", 1)
            spec.input("in")
            spec.output("out")

        def compute(self, i: Any, o: Any, c: Any) -> None:
            self.use()
            o.emit(i.receive("in") * self.factor, "out")

    class Sink(stage):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.input("in")

        def compute(self, i: Any, o: Any, c: Any) -> None:
            self.use()
            taken.append(i.receive("in"))

    class Middle(names.own(Subgraph)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            scale = Scale(self, factor=2, name="scale")
            self.add_input_interface_port("in", scale, "in")
            self.add_output_interface_port("out", scale, "out")
            made.extend([self, scale])

    class Edge(names.own(Fragment)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            cond = names.own(Condition)(self, name="always")
            source = Source(self, cond, CountCondition(self, 3), name="source")
            middle = Middle(self, name="middle")
            self.add_flow(source, middle, {("out", "in")})
            made.extend([self, cond, source])

    class Hub(names.own(Fragment)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            res = names.own(Resource)(self, name="resource")
            sink = Sink(self, res, name="sink")
            self.add_operator(sink)
            made.extend([self, res, sink])

    class App(names.own(Application)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            e, h = Edge(self, name="edge"), Hub(self, name="hub")
            self.add_flow(e, h, {("middle_scale.out", "sink.in")})
            made.append(self)

    app = App()
    app.scheduler(names.own(GreedyScheduler)(app, name="greedy"))
    made.append(app.scheduler())
    with Tracker(app):
        app.run()
    return made, taken


# What headrace calls and reads in these classes, under names that are not the SDK's.
OF_HEADRACE: dict[Any, set[str]] = {
    GreedyScheduler: {
        *("check_change", "execute", "follow_change", "network_connection_timeout", "prepare", "set_limits"),
        *("check_graph", "release", "workers"),
    },
}


@functools.cache
def names_of() -> dict[str, set[str]]:
    """Return the names that classes of programs may use, by the base class."""
    with sim.Machine():  # operators have streams, so that their objects have all names
        made, _ = program(Names({}, "method"))
    found: dict[str, set[str]] = {}
    for base in BASES:
        objects = [each for each in made if isinstance(each, base)]
        known = OF_THE_SDK[base] | OF_HEADRACE.get(base, set())
        names = undocumented(base, objects, known) | of_inner_class(base, objects, known)
        found[base.__name__] = names - {"sent", "factor", "use"}  # the program's own
    return found


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.usefixtures("machine")
def test_a_program_may_use_every_name_that_the_sdk_does_not_have(when: str) -> None:
    names = Names(names_of(), when)
    assert sum(map(len, names.names.values())) > 500
    made, taken = program(names)
    assert taken == [2, 4, 6]
    if when in ("__init__", "method"):
        check_kept(names, made)


@pytest.mark.parametrize("base", BASES)
def test_a_planted_name_is_found_and_breaks_the_program(base: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_planted", property(lambda self: 1), raising=False)
    assert "_planted" in undocumented(base, (), OF_THE_SDK[base])
    with pytest.raises(AttributeError, match="no setter"):
        program(Names({base.__name__: {"_planted"}}, "__init__"))
