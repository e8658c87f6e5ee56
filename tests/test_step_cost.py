"""A step takes no more bytecodes than it did: a check of its cost that depends on no machine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import step
from headrace._runtime import is_compiled


@pytest.mark.turns  # each has a loop of its own
@pytest.mark.parametrize("scheduler", step.PROGRAMS)
def test_a_step_takes_no_more_bytecodes_than_it_did(scheduler: str) -> None:
    if is_compiled():
        pytest.skip("the compiled build has no bytecodes")
    saved: dict[str, Any] = json.loads(step.SAVED.read_text())
    if step.version() not in saved:
        pytest.skip(f"no counts are saved for Python {step.version()}")
    now, before = step.per_step(scheduler), saved[step.version()][scheduler]
    assert not step.is_dearer(now, before), (
        f"a step takes {now:.1f} bytecodes, and took {before:.1f}: make it cheaper, or say in the commit why it "
        "has to be dearer, and run `python -m benchmarks.step --save`"
    )


def test_more_than_the_margin_is_dearer() -> None:
    assert [step.is_dearer(now, 100.0) for now in (50.0, 100.0, 102.9, 103.1)] == [False, False, False, True]
