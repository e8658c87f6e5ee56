from __future__ import annotations

from typing import Any

import pytest
from pipelines import SCHEDULERS, App, Body, Make, run

from penstock import CountCondition
from penstock.core import MetadataDictionary, MetadataPolicy


def chain(app: App, seen: list[Any], ticks: int = 1, **settings: Any) -> tuple[Body, Body, Body]:
    def first(op: Body, i: Any, o: Any) -> None:
        op.metadata.set("frame", op.ticks)
        o.emit(op.ticks)

    def last(op: Body, i: Any, o: Any) -> None:
        i.receive()
        seen.append(dict(op.metadata))

    a = Body(app, CountCondition(app, ticks), outputs=["out"], body=first, name="a")
    b = Body(app, inputs=["in"], outputs=["out"], body=lambda op, i, o: o.emit(i.receive()), name="b")
    c = Body(app, inputs=["in"], body=last, name="c")
    app.add_flow(a, b)
    app.add_flow(b, c)
    return a, b, c


@pytest.mark.parametrize("make", SCHEDULERS)
def test_metadata_travels_through_operators_that_do_not_know_of_it(make: Make) -> None:
    seen: list[Any] = []
    run(lambda app: chain(app, seen, 3), make)
    assert seen == [{"frame": 1}, {"frame": 2}, {"frame": 3}]


def test_metadata_does_not_travel_where_it_is_disabled() -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        app.enable_metadata(False)
        chain(app, seen)

    run(compose)
    assert seen == [{}]


def test_one_operator_can_leave_it_out() -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        _, b, _ = chain(app, seen)
        b.enable_metadata(False)

    run(compose)
    assert seen == [{}]


def test_what_is_set_and_not_emitted_is_gone_at_the_next_compute() -> None:
    def body(op: Body, i: Any, o: Any) -> None:
        op.metadata.set("key", op.ticks)

    run(lambda app: app.add_operator(Body(app, CountCondition(app, 3), body=body)))


@pytest.mark.parametrize(
    ("policy", "kept"),
    [(MetadataPolicy.UPDATE, 2), (MetadataPolicy.INPLACE_UPDATE, 2), (MetadataPolicy.REJECT, 1)],
)
def test_a_policy_says_which_value_is_kept(policy: MetadataPolicy, kept: int) -> None:
    metadata = MetadataDictionary(policy)
    metadata.set("key", 1)
    metadata["key"] = 2
    assert metadata["key"] == kept


@pytest.mark.parametrize("policy", [MetadataPolicy.RAISE, MetadataPolicy.DEFAULT])
def test_a_policy_can_refuse_a_second_value(policy: MetadataPolicy) -> None:
    metadata = MetadataDictionary(policy, "joiner")
    metadata.set("key", 1)
    with pytest.raises(
        RuntimeError, match=r"metadata key 'key' of operator 'joiner' is already set \(to 1\)"
    ):
        metadata.update({"key": 2})


def test_the_policy_of_the_fragment_is_the_default_of_its_operators() -> None:
    app = App(lambda app: None)
    app.metadata_policy = MetadataPolicy.REJECT
    operator = Body(app)
    assert operator.metadata_policy is operator.metadata.policy is MetadataPolicy.REJECT


def test_the_dictionary_has_the_reference_methods() -> None:
    metadata = MetadataDictionary()
    metadata.insert({"a": 1, "b": 2})
    assert metadata.has_key("a")
    assert metadata.size() == 2
    assert metadata.erase("a")
    assert not metadata.erase("a")
    assert metadata.get("a", 5) == 5
    assert metadata.pop("b") == 2
