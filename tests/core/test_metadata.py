from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import ConditionType, CountCondition, IOSpec, op
from headrace.core import MetadataDictionary, MetadataPolicy
from tests.harness import App, MakeScheduler, Step, run
from tests.limits import examples


def chain(app: App, seen: list[Any], ticks: int = 1, **settings: Any) -> tuple[Step, Step, Step]:
    def first(op: Step, i: Any, o: Any) -> None:
        op.metadata.set("frame", op.ticks)
        o.emit(op.ticks)

    def last(op: Step, i: Any, o: Any) -> None:
        i.receive()
        seen.append(dict(op.metadata))

    a = Step(app, CountCondition(app, ticks), outputs=["out"], body=first, name="a")
    b = Step(app, inputs=["in"], outputs=["out"], body=lambda op, i, o: o.emit(i.receive()), name="b")
    c = Step(app, inputs=["in"], body=last, name="c")
    app.add_flow(a, b, c)
    return a, b, c


def test_metadata_travels_through_operators_that_do_not_know_of_it(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []
    run(lambda app: chain(app, seen, 3), scheduler)
    assert seen == [{"frame": 1}, {"frame": 2}, {"frame": 3}]


def test_one_operator_can_leave_it_out() -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        _, b, _ = chain(app, seen)
        b.enable_metadata(False)

    run(compose)
    assert seen == [{}]


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
    operator = Step(app)
    assert operator.metadata_policy is operator.metadata.policy is MetadataPolicy.REJECT


def test_a_dictionary_begins_empty() -> None:
    with pytest.raises(TypeError, match=r"begins empty.*not with \{'a': 1\}"):
        MetadataDictionary({"a": 1})  # type: ignore[arg-type]


# Every way of a dict to put something in follows the policy, and is told to the run.

KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.integers(0, 3)
ENTRIES = st.dictionaries(KEYS, VALUES, max_size=3)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["set", "item", "setdefault"]), KEYS, VALUES),
    st.tuples(st.sampled_from(["update", "pairs", "named", "ior", "keyed"]), ENTRIES),
    st.tuples(st.sampled_from(["pop", "delete"]), KEYS),
    st.tuples(st.sampled_from(["clear", "popitem", "setdefault_none", "copy", "pickle", "deepcopy", "or"])),
)


class Keyed:
    """Has keys() and items by key, and is no mapping."""

    def __init__(self, entries: dict[str, int]) -> None:
        self.entries = entries

    def keys(self) -> Any:
        return self.entries.keys()

    def __getitem__(self, key: str) -> int:
        return self.entries[key]


class Model:
    """What a dictionary with a policy holds, step by step."""

    def __init__(self, policy: MetadataPolicy) -> None:
        self.policy = policy
        self.entries: dict[str, Any] = {}

    def set(self, key: str, value: Any) -> None:
        if key in self.entries:
            if self.policy is MetadataPolicy.REJECT:
                return
            if self.policy in (MetadataPolicy.RAISE, MetadataPolicy.DEFAULT, MetadataPolicy.BY_PORT):
                raise RuntimeError
        self.entries[key] = value

    def step(self, name: str, *arguments: Any) -> None:
        if name in ("set", "item"):
            self.set(*arguments)
        elif name == "setdefault":
            self.entries.setdefault(*arguments)
        elif name == "setdefault_none":
            self.entries.setdefault("a", None)
        elif name in ("update", "pairs", "named", "ior", "keyed"):
            for key, value in arguments[0].items():
                self.set(key, value)
        elif name in ("pop", "delete"):
            self.entries.pop(arguments[0], None)
        elif name == "clear":
            self.entries.clear()
        elif name == "popitem" and self.entries:
            self.entries.popitem()


def step(metadata: MetadataDictionary, name: str, *arguments: Any) -> MetadataDictionary:
    """Take one step on the real thing; return what to go on with."""
    if name == "set":
        metadata.set(*arguments)
    elif name == "item":
        metadata[arguments[0]] = arguments[1]
    elif name == "setdefault":
        assert metadata.setdefault(*arguments) == metadata[arguments[0]]
    elif name == "setdefault_none":
        assert metadata.setdefault("a") is metadata["a"]
    elif name == "update":
        metadata.update(dict(arguments[0]))
    elif name == "pairs":
        metadata.update(arguments[0].items())
    elif name == "named":
        metadata.update(**arguments[0])
    elif name == "keyed":
        metadata.update(Keyed(arguments[0]))
    elif name == "ior":
        same = metadata
        metadata |= arguments[0]
        assert metadata is same
    elif name == "pop":
        metadata.pop(arguments[0], None)
    elif name == "delete" and arguments[0] in metadata:
        del metadata[arguments[0]]
    elif name == "clear":
        metadata.clear()
    elif name == "popitem" and metadata:
        metadata.popitem()
    elif name == "copy":
        return metadata.copy()
    elif name == "or":
        return metadata | {}
    elif name == "pickle":
        return pickle.loads(pickle.dumps(metadata))  # type: ignore[no-any-return]
    elif name == "deepcopy":
        return copy.deepcopy(metadata)
    return metadata


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(st.sampled_from(list(MetadataPolicy)), st.lists(STEPS, max_size=12))
def test_a_metadata_dictionary_is_a_dict_with_a_policy(policy: MetadataPolicy, steps: list[Any]) -> None:
    metadata, model = MetadataDictionary(policy, "owner"), Model(policy)
    for each in steps:
        refused = [False, False]
        try:
            model.step(*each)
        except RuntimeError:
            refused[0] = True
        try:
            metadata = step(metadata, *each)
        except RuntimeError as error:
            refused[1] = "of operator 'owner' is already set" in str(error)
        assert refused[0] == refused[1]
        assert dict(metadata) == model.entries
        assert (metadata.policy, metadata.owner) == (policy, "owner")


def filled(**entries: Any) -> MetadataDictionary:
    metadata = MetadataDictionary()
    metadata.update(entries)
    return metadata


WAYS = {
    "set": lambda metadata: metadata.set("key", 1),
    "item": lambda metadata: metadata.__setitem__("key", 1),
    "setdefault": lambda metadata: metadata.setdefault("key", 1),
    "update": lambda metadata: metadata.update(key=1),
    "ior": lambda metadata: metadata.__ior__({"key": 1}),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_puts_something_in_it_travels_once_and_not_with_later_messages(
    scheduler: MakeScheduler, way: str
) -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            assert op.metadata == {}
            if op.ticks == 2:
                WAYS[way](op.metadata)
            o.emit(op.ticks)

        def take(op: Step, i: Any, o: Any) -> None:
            seen.append((i.receive(), dict(op.metadata)))

        a = Step(app, CountCondition(app, 4), outputs=["out"], body=send, name="a")
        app.add_flow(a, Step(app, inputs=["in"], body=take, name="b"))

    run(compose, scheduler)
    assert seen == [(1, {}), (2, {"key": 1}), (3, {}), (4, {})]


def test_what_is_made_from_it_stands_by_itself() -> None:
    """A change to a copy is no metadata of the operator it came from."""
    seen: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            for other in (op.metadata.copy(), op.metadata | {"x": 1}, copy.deepcopy(op.metadata)):
                assert type(other) is MetadataDictionary
                assert other.node is None
                other["key"] = 1
            assert type({"y": 2} | op.metadata) is dict
            o.emit(op.ticks)

        def take(op: Step, i: Any, o: Any) -> None:
            seen.append((i.receive(), dict(op.metadata)))

        a = Step(app, CountCondition(app, 2), outputs=["out"], body=send, name="a")
        app.add_flow(a, Step(app, inputs=["in"], body=take, name="b"))

    run(compose)
    assert seen == [(1, {}), (2, {})]


def test_a_union_follows_the_policy_of_its_left_side() -> None:
    metadata = MetadataDictionary(MetadataPolicy.REJECT)
    metadata["key"] = 1
    assert metadata | {"key": 2, "more": 3} == {"key": 1, "more": 3}
    assert {"key": 2, "more": 3} | metadata == {"key": 1, "more": 3}
    assert metadata == {"key": 1}
    assert MetadataDictionary.fromkeys(["a", "b", "a"], 0) == {"a": 0, "b": 0}
    with pytest.raises(TypeError):
        metadata | 3


@pytest.mark.parametrize("size", [3, IOSpec.ANY_SIZE, 1])
def test_metadata_by_port_has_an_entry_for_each_of_several_messages(size: int) -> None:
    seen: list[Any] = []

    @op
    def numbers(*, metadata: Any) -> Any:
        for number in range(6):
            if number != 1:
                metadata["number"] = number
            yield number

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        for _ in range(3 if size == 1 else 1):
            op_input.receive("in")
        seen.append(self.metadata.get("in"))

    def compose(app: Any) -> None:
        step = Step(app, inputs=[("in", {"size": size})], body=take, name="step")
        if size == 1:
            step.spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=3)
        step.metadata_policy = MetadataPolicy.BY_PORT
        app.add_flow(numbers(app), step, size=3 if size == 1 else None)
        if size == IOSpec.ANY_SIZE:
            app.add_flow(numbers(app, name="others"), step)

    run(compose)
    if size == IOSpec.ANY_SIZE:
        assert seen == [[{"number": n}, {"number": n}] if n != 1 else None for n in range(6)]
    elif size == 3:
        assert seen == [
            [{"number": 0}, {}, {"number": 2}],
            [{"number": 3}, {"number": 4}, {"number": 5}],
        ]
    else:  # received one by one, of which those without metadata leave nothing
        assert seen == [
            [{"number": 0}, {"number": 2}],
            [{"number": 3}, {"number": 4}, {"number": 5}],
        ]
