"""Expansion: replaces the operators of a composed graph that have ``workers=`` by their replicas (`crew`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.core.async_function import AsyncFunctionOperator
from headrace.core.errors import GraphError
from headrace.core.graph import Flow, queues_of
from headrace.core.parameters import holder_of
from headrace.core.ports import ConditionType, PortCondition
from headrace.core.thread_pool import ThreadPool
from headrace.replicas.crew import Collector, Crew, Distributor, Worker, job_port
from headrace.replicas.process_replica import ProcessReplica

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator, Replicas

_ANY_NUMBER = 1 << 30


def expand(fragment: Composition, run_child: Callable[..., None]) -> None:
    """Replace every operator with replicas; `run_child` is what a process of a replica runs."""
    for operator in list(fragment.graph):
        options = operator._headrace.replication.options
        if options is not None:
            _check(fragment, operator, options)
            _expand(fragment, operator, options, run_child)


def _check(fragment: Composition, operator: Operator, options: Replicas) -> None:
    """Raise if an operator cannot be replicated."""
    where = f"operator {operator.name!r} has workers={options.workers}"
    if not operator._headrace.incoming:
        raise GraphError(
            f"{where} and no messages to distribute: a source is not replicated; create several, or replicate the "
            "operator behind it"
        )
    policy = operator._headrace.error_policy
    for is_so, what in (
        (
            operator._headrace.dynamic_flows is not None
            or any(
                port.is_execution
                for port in (*operator.spec.every_input.values(), *operator.spec.every_output.values())
            ),
            "has dynamic flows or execution flows; replicate the operators before or behind it",
        ),
        (operator.spec.is_joined, "joins its inputs; join them in an operator before it"),
        (bool(policy.retries or policy.dead_letter), "retries or sends dead letters after errors"),
        (isinstance(operator, AsyncFunctionOperator), "is async; concurrency= lets its calls overlap"),
        (
            operator._headrace.has_end and options.on == "processes",
            "has an end, which a replica in another process does not call; use on='threads'",
        ),
    ):
        if is_so:
            raise GraphError(f"{where} and {what}")
    name = _collects(operator)
    if name:
        raise GraphError(
            f"{where} and waits for several messages at input {name!r}, which receives one at a time: a replica is "
            "given what one receive returns; declare the input with size=, so that a receive returns all of them"
        )
    for segment in fragment.segments:
        if operator in segment.operators:
            raise GraphError(f"{where} and is captured in segment {segment.name!r}; leave one of them out")
    for pool in fragment._headrace.thread_pools:
        if operator in pool.operators:
            raise GraphError(f"{where}, which have threads of their own, and is in thread pool {pool.name!r}")
    mixed = [
        name for group in operator.spec.or_combined for name in group if name in operator.spec.every_output
    ]
    if mixed:
        raise GraphError(
            f"{where}, and output {mixed[0]!r} in or_combine_port_conditions: only inputs can be"
        )


def _collects(operator: Operator) -> str:
    """Return an input at which an operator waits for more messages than a receive returns, or an empty string."""
    inputs = operator.spec.every_input
    single = [name for name, port in inputs.items() if not port.gives_tuple]
    wanted = [each for port in inputs.values() for each in port.conditions] + operator.spec.multi_port
    waits = [(each.ports, each.arguments) for each in wanted]
    waits += [
        (each.port_names or tuple(inputs), vars(each))
        for given in operator._headrace.conditions
        for each in (given, *given.terms)
        if each.port_role in ("receiver", "receivers")
    ]
    for ports, numbers in waits:
        several = max(numbers.get("min_size") or 1, numbers.get("max_batch_size") or 1) > 1
        several = several or (numbers.get("min_sum") or 1) > len(ports)  # then one of them has several
        least = numbers.get("min_sizes") or [2 if several else 1] * len(ports)
        for name, number in zip(ports, least, strict=False):
            if number > 1 and name in single:
                return name
    return ""


def _expand(
    fragment: Composition, operator: Operator, options: Replicas, run_child: Callable[..., None]
) -> None:
    graph = fragment.graph
    crew = Crew(options.ordered)
    distributor = crew.distributor = Distributor(fragment, operator, crew)
    outputs = [
        name
        for name in operator.spec.every_output
        if any(f.output == name for f in operator._headrace.outgoing)
    ]
    collector = crew.collector = Collector(fragment, operator, crew, outputs) if outputs else None
    pool = ThreadPool(fragment, name=f"workers of {operator.name}")
    pool.is_required = True
    inner: list[Flow] = []
    for number in range(options.workers):
        if options.on == "processes":
            replica: Operator = ProcessReplica(fragment, operator, number, run_child)
        else:
            args, keywords = operator._headrace.replication.creation
            replica = type(operator)(*args, **keywords)
        _copy_settings(operator, replica, number)
        worker = Worker(crew, replica)
        crew.workers.append(worker)
        pool.add(replica)
        inner += _give_jobs(operator, distributor, worker, number)
        if collector is not None:
            results = collector.spec.every_input
            inner += [Flow(replica, name, collector, name, _ANY_NUMBER) for name in results]
    for made in (distributor, collector, *(worker.operator for worker in crew.workers)):
        if made is not None:
            made.fragment = operator.fragment  # which is a part of this one, perhaps
    replicas = tuple(worker.operator for worker in crew.workers)
    replication = operator._headrace.replication
    replication.distributor, replication.collector, replication.copies = distributor, collector, replicas
    distributor._headrace.replication.declared = operator
    for replica in replicas:
        replica._headrace.replication.copies = replicas
        replica._headrace.replication.declared = operator
    operators: list[Operator] = []
    for other in graph:
        operators += [other] if other is not operator else [distributor, *replicas]
        if other is operator and collector is not None:
            operators.append(collector)
    flows = [_moved(flow, operator, distributor, collector) for flow in graph.flows]
    graph.rebuild(operators, [*flows, *inner])


def _copy_settings(operator: Operator, replica: Operator, number: int) -> None:
    """Set the name of a replica, and what the program set on its operator since it was created."""
    replica.name = replica.spec.owner = f"{operator.name}[{number}]"
    replica.metadata = replica._headrace.metadata_type(operator.metadata.policy, replica.name)
    replica._headrace.replication.options = None
    for name in replica.spec.params:
        setattr(holder_of(replica), name, getattr(holder_of(operator), name))
    replica.on_error, replica.max_in_flight = operator.on_error, operator.max_in_flight
    replica._headrace.metadata_enabled = operator._headrace.metadata_enabled
    replica.spec.time_limit, replica.spec.on_stuck = operator.spec.time_limit, operator.spec.on_stuck
    replica._headrace.knobs.given.update(operator._headrace.knobs.given)
    let_run_for_jobs(replica)


def let_run_for_jobs(replica: Operator) -> None:
    """Remove the conditions of the ports: a replica runs when it has a job."""
    spec = replica.spec
    spec.or_combined.clear()
    spec.multi_port.clear()
    for port in (*spec.every_input.values(), *spec.every_output.values()):
        port.conditions[:] = [PortCondition(ConditionType.NONE, {}, (port.name,))]
        port.policy = None


def _give_jobs(operator: Operator, distributor: Distributor, worker: Worker, number: int) -> list[Flow]:
    """Return the flows from the distributor to a replica: one for each queue of the operator."""
    flows = []
    for name, port in operator.spec.every_input.items():
        for place, queue in enumerate(queues_of(operator, port)):
            output = job_port(name, number, place)
            distributor.spec.output(output).condition(ConditionType.NONE)
            flows.append(Flow(distributor, output, worker.operator, name, queue.size))
    return flows


def _moved(flow: Flow, operator: Operator, distributor: Distributor, collector: Collector | None) -> Flow:
    """Return a flow that ends at the distributor, or begins at the collector, in place of the operator."""
    source = collector if flow.source is operator else flow.source
    target = distributor if flow.target is operator else flow.target
    assert source is not None
    return Flow(source, flow.output, target, flow.input, flow.size, flow.policy)
