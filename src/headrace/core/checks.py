"""Check a program's declarations before it runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.core.error_policy import ErrorPolicy
from headrace.core.errors import GraphError, ParameterError, choices
from headrace.core.execution import settle_execution
from headrace.core.function import FunctionOperator
from headrace.core.graph import is_sink, queues_of
from headrace.core.operator import Operator
from headrace.core.parameters import holder_of
from headrace.core.ports import ConditionType, IOSpec
from headrace.core.resource import Resource
from headrace.core.values import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.core.composition import Composition
    from headrace.core.graph import Graph


def compose(fragment: Composition, on_declared: Callable[[], object] | None = None) -> Graph:
    """Compose a fragment, check what it declared, and return its graph.

    `on_declared` is called when the graph is as the program declared it, without replicas.
    """
    made = fragment._headrace.compose_graph()
    settle_execution(fragment.graph)
    check(fragment, made)
    if on_declared is not None:
        on_declared()
    fragment._headrace.complete_graph(partial(_check_resources, fragment))
    return fragment.graph


def check(fragment: Composition, made: Iterable[Operator] = ()) -> None:
    """Raise for the first operator or port of a fragment that could not run; the error states what would be right.

    `made` are the operators that compose created; all of them must be in the graph.
    """
    graph = fragment.graph
    for operator in made:
        if operator not in graph:
            fragment._headrace.report(
                f"operator {operator.name!r} ({type(operator).__name__}) was created in compose but is not "
                "part of the graph, so it would never run; connect it with add_flow(...), or add it with "
                "add_operator(...) if it has no flows"
            )
    if not len(graph):
        fragment._headrace.report(
            "there are no operators: compose() must call add_flow(...) for operators that are connected "
            "and add_operator(...) for operators without flows"
        )
    for operator in graph:
        check_operator(operator)
        _check_inputs(graph, operator, {flow.input for flow in operator._headrace.incoming})


def check_operator(operator: Operator) -> None:
    """Raise if an operator could not run, or its queues could not be made, whatever else is in the graph."""
    missing = operator.spec.missing(operator)
    if missing:
        raise ParameterError(
            f"operator {operator.name!r} ({type(operator).__name__}) needs a value for "
            f"{choices(missing)}; pass it as a keyword argument or with add_arg"
        )
    _check_policies(operator)
    if type(operator).start is Operator.start and type(operator).initialize is Operator.initialize:
        check_compute(operator)  # the others may set their compute there
    _check_queues(operator)
    flows = [
        flow
        for flow in operator._headrace.outgoing
        if flow.output != operator.spec.dead_letter
        and not operator.spec.every_output[flow.output].is_execution
    ]
    if flows and operator._headrace.never_emits:
        raise GraphError(
            f"operator {operator.name!r}: the function says that it returns nothing (-> None), so {flows[0]} would "
            "carry nothing; return the value to emit, and say its type"
        )


def _check_policies(operator: Operator) -> None:
    """Raise if an operator cannot do what it declares about errors and stuck computes."""
    policy = operator._headrace.error_policy
    port = policy.dead_letter
    _check_combinations(operator, policy)
    where = f"operator {operator.name!r}: dead_letter={port!r}"
    if port and port not in operator.spec.every_output:
        raise GraphError(
            f"{where} names no output; give on_error where the operator is created, which adds it"
        )
    if port and not operator.spec.every_input:
        raise GraphError(f"{where} sends messages that a compute received, and the operator has no input")
    if port and not operator.is_metadata_enabled:
        raise GraphError(
            f"{where} describes the error in the metadata of the message, and metadata is turned off; turn it on "
            "with enable_metadata(True)"
        )
    if operator.spec.on_stuck is not None and not operator.spec.time_limit:
        raise ParameterError(
            f"operator {operator.name!r} has an on_stuck and no deadline; add deadline='500ms'"
        )


def _check_combinations(operator: Operator, policy: ErrorPolicy) -> None:
    """Raise for what an operator declares and cannot have together."""
    is_async = isinstance(operator, FunctionOperator) and operator.declared.is_async
    overlaps = isinstance(operator, FunctionOperator) and is_async and operator.declared.concurrency > 1
    again = bool(policy.retries or policy.dead_letter)
    for is_so, what in (
        (again and operator.spec.is_joined, "joins its inputs and retries or sends dead letters"),
        (again and is_async, "is async and retries or sends dead letters"),
        (overlaps and policy.action == "restart", "has concurrency= and restarts after errors"),
        (overlaps and operator.spec.is_joined, "has concurrency= and joins its inputs"),
    ):
        if is_so:
            raise GraphError(f"operator {operator.name!r} {what}, which is not supported together")


def _check_resources(fragment: Composition) -> None:
    """Raise for resources that are not available or cannot be used together (:meth:`Resource.check_graph`)."""
    found: list[object] = [fragment.get_default_green_context_pool()]
    for operator in fragment.graph:
        found.append(operator.fragment.get_default_green_context_pool())
        found += operator.resources.values()
        found += [getattr(holder_of(operator), name, None) for name in operator.spec.params]
    for check_graph in {part._headrace.check_of(part): None for part in found if isinstance(part, Resource)}:
        check_graph(fragment)


def check_compute(operator: Operator) -> None:
    """Raise if an operator has no compute of its own: it would always be ready and do nothing."""
    if type(operator).compute is Operator.compute and "compute" not in vars(operator):
        operator.fragment._headrace.report(
            f"operator {operator.name!r}: class {type(operator).__name__} has no compute(self, op_input, "
            "op_output, context), which does the operator's work"
        )


def waits_for_ever(operator: Operator, connected: set[str]) -> str | None:
    """Return the first input that keeps an operator from ever running if only `connected` get messages, or None."""
    groups = [set(names) for names in operator.spec.or_combined]
    groups += [set(condition.ports) for condition in operator.spec.multi_port]
    groups += [set(condition.port_names) for condition in operator._headrace.conditions]
    for name, port in operator.spec.every_input.items():
        if name in connected or port.is_receivers:
            continue
        if port.conditions:  # it runs without a message here, or a condition was declared for this port
            continue
        if any(name in group and group & connected for group in groups):
            continue
        return name
    return None


def has_nothing_to_wait_for(operator: Operator, connected: set[str]) -> bool:
    """Return whether a function takes any number of messages, gets none, and would be called for ever.

    A class may mean it: an operator without messages is a source.
    """
    ports = operator.spec.every_input
    return (
        operator.is_function
        and bool(ports)
        and not connected
        and not operator.conditions
        and all(port.is_receivers and not port.conditions for port in ports.values())
    )


def _check_inputs(graph: Graph, operator: Operator, connected: set[str]) -> None:
    name = waits_for_ever(operator, connected)
    if name is not None:
        operator.fragment._headrace.report(
            f"input {name!r} of operator {operator.name!r}{_through(graph, operator, name)} is not connected, "
            f"so the operator would never run; {_connect(graph, operator)}, or declare it with "
            ".condition(ConditionType.NONE) if it may stay empty"
        )
    check_waits_for_something(graph, operator)
    if operator.is_function and not operator.conditions and is_sink(operator) and _waits_for_none(operator):
        operator.fragment._headrace.report(
            f"operator {operator.name!r} waits for nothing: its inputs keep the latest message, which it "
            "receives any number of times, so the function would be called for ever; give the operator a "
            "condition, such as PeriodicCondition(self, '20ms')"
        )


def check_waits_for_something(graph: Graph, operator: Operator) -> None:
    """Raise for a function that takes any number of messages, gets none, and would be called for ever."""
    if has_nothing_to_wait_for(operator, {flow.input for flow in operator._headrace.incoming}):
        raise GraphError(
            f"input {next(iter(operator.spec.inputs))!r} of operator {operator.name!r} takes the messages of any "
            "number of flows and has none, so the function would be called without arguments for ever; "
            f"{_connect(graph, operator)}, or give the operator a condition, such as CountCondition(self, 1)"
        )


def _waits_for_none(operator: Operator) -> bool:
    """Return whether an operator has inputs, and all of them keep their newest message."""
    ports = operator.spec.every_input.values()
    queues = [queue for port in ports for queue in queues_of(operator, port)]
    return bool(queues) and all(
        queue.policy is IOSpec.QueuePolicy.LATEST and not port.conditions
        for port in ports
        for queue in queues
    )


def _through(graph: Graph, operator: Operator, name: str) -> str:
    """Return the port of the outermost subgraph that leads to an input, in words."""
    for subgraph in graph.subgraphs.values():
        for port, behind in subgraph._headrace.spec.every_input.items():
            if any(each.owner is operator and each.name == name for each in behind):
                return f" (port {port!r} of subgraph {subgraph.name!r})"
    return ""


def _connect(graph: Graph, operator: Operator) -> str:
    """Return what to do with an input that is not connected."""
    others = [other for other in graph if other is not operator]
    outputs = ", ".join(f"{other.name}.{output}" for other in others for output in other.spec.outputs)
    return f"connect it with add_flow (outputs: {outputs or 'none'})"


def _check_queues(operator: Operator) -> None:
    for name, port in operator.spec.every_input.items():
        size = min((queue.size for queue in queues_of(operator, port)), default=0)
        for condition in port.conditions:
            if condition.kind is not ConditionType.MESSAGE_AVAILABLE:
                continue
            where = f"input {name!r} of operator {operator.name!r}: min_size"
            least = whole_number(condition.arguments.get("min_size", 1), where, 0)
            if size and least > size:
                raise GraphError(
                    f"input {name!r} of operator {operator.name!r} waits for {least} messages, but its queue "
                    f"holds {size}; declare it with size={least} or more"
                )
