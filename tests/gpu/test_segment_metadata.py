"""Metadata, timestamps and the order of messages: the same with and without capture."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core import MetadataPolicy
from tests.gpu.segment_programs import (
    FRAMES,
    Blend,
    Sink,
    Source,
    Stage,
    Work,
    affine,
    both,
    chain,
    first_timestamp,
    is_captured,
    launch,
    run_with,
    stages,
)

pytestmark = pytest.mark.usefixtures("of_this_process")


def test_metadata_and_timestamps_are_carried_past() -> None:
    def compose(app: Any) -> None:
        members = stages(app)
        chain(app, Source(app, details=True, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members)

    ran = both(compose)
    assert is_captured(ran)
    assert [(one.metadata, one.timestamp) for one in ran.seen["sink"]] == [
        ({"from source": number}, first_timestamp("source") + number) for number in range(FRAMES)
    ]


def test_metadata_is_merged_as_each_operator_says() -> None:
    def compose(app: Any) -> None:
        def label(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            self.metadata["label"] = self.name
            op_output.emit(op_input.receive("in"), "out")

        def backwards(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            two = op_input.receive("two")
            stream = op_input.receive_cuda_stream("two")
            early = self.new(stream)
            launch(stream, affine, early, two, two.shape[0], 2, 0)
            op_output.emit(early, "early")  # with the metadata of `two` alone
            one = op_input.receive("one")
            stream = op_input.receive_cuda_stream("one")
            result = self.new(stream)
            launch(stream, affine, result, one, one.shape[0], 3, 0)
            op_output.emit(result, "out")

        left, right = (Work(app, body=label, name=name) for name in ("left label", "right label"))
        one, two = Stage(app, times=5, name="one"), Stage(app, times=7, name="two")
        blend = Work(app, body=backwards, inputs=("one", "two"), outputs=("early", "out"), name="backwards")
        blend.metadata_policy = MetadataPolicy.UPDATE
        silent = Stage(app, name="silent")
        silent.enable_metadata(False)
        chain(app, Source(app, details=True, name="left"), left, one)
        chain(app, Source(app, details=True, name="right"), right, two)
        app.add_flow(one, blend, {("out", "one")})
        app.add_flow(two, blend, {("out", "two")})
        app.add_flow(blend, Sink(app, name="a"), {("out", "in")})
        app.add_flow(blend, Sink(app, name="b"), {("early", "in")})
        app.add_flow(blend, silent, {("out", "in")})
        chain(app, silent, Sink(app, name="c"))
        app.capture(one, two, blend, silent)

    ran = both(compose)
    assert is_captured(ran)
    assert [ran.seen[name][-1].metadata.get("label") for name in "abc"] == ["left label", "right label", None]


def test_an_entry_that_two_inputs_have_is_the_same_error_in_a_replay() -> None:
    def compose(app: Any) -> None:
        def label(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.fragment.number >= FRAMES * 2 - 4:
                self.metadata["label"] = self.name
            self.fragment.number += 1
            op_output.emit(op_input.receive("in"), "out")

        app.number = 0
        left, right = (Work(app, body=label, name=name) for name in ("left label", "right label"))
        blend = Blend(app, name="blend")
        chain(app, Source(app, name="left"), left)
        chain(app, Source(app, name="right"), right)
        app.add_flow(left, blend, {("out", "one")})
        app.add_flow(right, blend, {("out", "two")})
        chain(app, blend, Sink(app, name="sink"))
        app.capture(blend)

    texts = []
    for mode in ("off", ""):
        with pytest.raises(RuntimeError, match="'label' of operator 'blend' is already set") as raised:
            run_with(compose, mode)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
