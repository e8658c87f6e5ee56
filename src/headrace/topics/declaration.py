"""`export_topic` and `import_topic`: what compose declares about topics."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.conditions import CountCondition
from headrace.core.errors import TopicError
from headrace.core.ports import IOSpec
from headrace.core.values import whole_number
from headrace.core.wiring import Port, owner_of
from headrace.topics.discovery import check_topic
from headrace.topics.operators import ExportTopicOp, ImportTopicOp
from headrace.topics.publication import Publication
from headrace.topics.subscription import Subscription
from headrace.topics.topic_end import MOST_PLACES, check_queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.composition import Composition
    from headrace.core.graph import Graph
    from headrace.core.operator import Operator
    from headrace.core.wiring import End, Ends


def export_topic(
    fragment: Composition,
    topic: str,
    source: End,
    port: str,
    *,
    size: int,
    policy: IOSpec.QueuePolicy,
    keep_last: bool,
) -> None:
    """Add the operator that publishes what an output emits."""
    where = f"export_topic({topic!r})"
    check_topic(topic)
    check_queue(where, size, policy)
    for other in fragment.graph:
        if isinstance(other, ExportTopicOp) and other._topic == topic:
            raise TopicError(f"{where}: {fragment.name!r} exports this topic already, by {other.name!r}")
    for other in _operators_of_program(fragment):
        if isinstance(other, ImportTopicOp) and other._topic == topic and other.ends_with_topic:
            raise _endless(topic, other.fragment, fragment)
    make = partial(Publication, topic, size=size, policy=policy, keep_last=keep_last)
    publisher = ExportTopicOp(fragment, topic, make, name=fragment._headrace.unused_name(f"export {topic}"))
    # An operator may emit as many messages at once as the queues of the subscribers hold.
    end = Port(source, port) if port else source
    fragment.add_flow(end, publisher, size=size, policy=IOSpec.QueuePolicy.FAULT)


def import_topic(
    fragment: Composition,
    topic: str,
    target: Ends,
    port: str,
    *,
    size: int,
    policy: IOSpec.QueuePolicy,
    last: bool,
    ends_with_topic: bool,
    count: int | None,
) -> None:
    """Add the operator that receives a topic, and connect it."""
    where = f"import_topic({topic!r})"
    check_topic(topic)
    check_queue(where, size, policy, MOST_PLACES)
    for other in _operators_of_program(fragment) if ends_with_topic else ():
        if isinstance(other, ExportTopicOp) and other._topic == topic:
            raise _endless(topic, fragment, other.fragment)
    conditions = []
    if count is not None:
        conditions.append(CountCondition(fragment, whole_number(count, f"{where}: count", 1)))
    make = partial(Subscription, topic, size=size, policy=policy, wants_last=last)
    name = fragment._headrace.unused_name(f"import {topic}")
    subscriber = ImportTopicOp(fragment, topic, make, *conditions, ends_with_topic=ends_with_topic, name=name)
    targets = target if isinstance(target, tuple) else (target,)
    for each in targets:
        end: Any = Port(each, port) if port else each
        fragment.add_flow(subscriber, end, **_queue_of(end, port, size, policy))


def _operators_of_program(fragment: Composition) -> Iterable[Operator]:
    """Return the operators that were declared so far, in all fragments of the application."""
    whole: Any = fragment._headrace.whole
    parts = getattr(whole, "fragment_graph", None)
    graphs = [fragment.graph, *(part.graph for part in (() if parts is None else parts.fragments))]
    return (operator for graph in graphs for operator in graph)


def _endless(topic: str, importing: Composition, exporting: Composition) -> TopicError:
    where = (
        ""
        if importing is exporting
        else f" ({importing.name!r} imports it, and {exporting.name!r} exports it)"
    )
    return TopicError(
        f"import_topic({topic!r}, ends_with_topic=True) in the program that exports it{where} would never end: the "
        "topic ends with the run, and the run would wait for the topic. Use a flow, or limit the import by count"
    )


def topics_of(graph: Graph) -> dict[str, Publication | Subscription]:
    """Return the topics of a graph that has run."""
    found: dict[str, Publication | Subscription] = {}
    for operator in graph:
        if isinstance(operator, ExportTopicOp) and operator.publication is not None:
            found[operator.name] = operator.publication
        elif isinstance(operator, ImportTopicOp) and operator.subscription is not None:
            found[operator.name] = operator.subscription
    return found


def _queue_of(end: End, port: str, size: int, policy: IOSpec.QueuePolicy) -> dict[str, Any]:
    """Return the size and the policy of the queue at an input, unless the input declares a policy of its own."""
    owner = owner_of(end)
    if not hasattr(owner, "spec"):
        return {}  # add_flow says what is wrong
    inputs = owner._headrace.spec.inputs
    name = end.name if isinstance(end, Port) else port or next(iter(inputs), "")
    declared = inputs.get(name)
    if declared is not None and declared.policy is not None:
        return {}
    return {"size": max(size, getattr(declared, "size", 1) or 1, 1), "policy": policy}
