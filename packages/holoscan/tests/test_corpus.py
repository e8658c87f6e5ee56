"""Programs written for the Holoscan SDK do the same through the layer.

With ``ORACLE_PYTHON``, an interpreter that has the SDK, each program also runs there now; without it, what the SDK
did is read from `corpus/recorded.json`.
"""

from __future__ import annotations

import ast
import functools
import json
import logging
import os
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from headrace_holoscan import alias, lenience
from headrace_holoscan.core import operator
from packages.holoscan.tests.corpus.differences import (
    ANY_ORDER,
    DIFFERENT,
    IN_REAL_TIME,
    KEPT,
)
from packages.holoscan.tests.corpus.record import RECORDED, on_the_sdk
from packages.holoscan.tests.corpus.running import FOLDER, PROGRAMS, Outcome, outcome
from tests.oracle.programs import PROGRAMS as OLDER
from tests.oracle.record import outcome as outcome_of_shared_names
from tests.oracle.test_oracle import DIFFERENT as DIFFERENT_HERE
from tests.oracle.test_oracle import RECORDED as OLDER_RECORDED

# The names that two and more of 151 public programs use (59 examples of the SDK, 92 of HoloHub), and most others.
# fmt: off
NAMES = {
    "Application", "Operator", "OperatorSpec", "CountCondition", "HolovizOp", "VideoStreamReplayerOp",
    "FormatConverterOp", "UnboundedAllocator", "CudaStreamPool", "InferenceOp", "BlockMemoryPool",
    "MemoryStorageType", "PeriodicCondition", "EventBasedScheduler", "V4L2VideoCaptureOp",
    "ConditionType", "IOSpec", "as_tensor", "PingTxOp", "Entity", "PingRxOp", "Tracker", "RMMAllocator",
    "SegmentationPostprocessorOp", "LogLevel", "set_log_level", "Fragment", "GreedyScheduler",
    "MultiThreadScheduler", "BooleanCondition", "ComponentSpec", "InferenceProcessorOp",
    "GXFComponentResource", "GXFCodeletOp", "PingTensorRxOp", "BayerDemosaicOp", "VideoStreamRecorderOp",
    "AsynchronousCondition", "CudaStreamCondition", "OutputContext", "ExecutionContext", "InputContext",
    "Tensor", "AsynchronousEventState", "Condition", "SchedulingStatusType", "Subgraph",
    "DefaultFragmentService", "Resource", "SimpleTextSerializer", "BasicConsoleLogger",
    "PeriodicConditionPolicy", "PoseTreeManager", "Pose3", "SO3", "create_op", "Input",
    "CudaGreenContext", "load_extensions", "OperatorStatus", "FragmentService", "PingTensorTxOp",
    "Output", "RealtimeClock", "CudaGreenContextPool", "GXFConsoleLogger", "AsyncConsoleLogger",
    "set_log_pattern",
}
# fmt: on


@functools.cache
def recorded() -> dict[str, Outcome]:
    found: dict[str, Outcome] = json.loads(RECORDED.read_text())
    return found


def on_the_other_system(name: str) -> Outcome:
    python = os.environ.get("ORACLE_PYTHON")
    return on_the_sdk(name, python) if python else recorded()[name]


@pytest.fixture
def as_holoscan() -> Iterator[None]:
    """Let ``import holoscan`` give the layer, and leave the logs as they were."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in ("headrace", "holoscan"))]
    levels = [logger.level for logger in loggers]
    alias.install()
    operator._numbers = count(1)
    try:
        yield
    finally:
        alias.uninstall()
        lenience.forget()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def comparable(name: str, found: Outcome) -> Outcome:
    """Leave out what a program does not determine."""
    found = {**found, "computes": found.get("computes", {})}
    if name in ANY_ORDER:
        found["printed"] = sorted(found["printed"])
    if name in IN_REAL_TIME:
        read = found["messages"]["rx.in"]
        assert read == sorted(read)  # nothing older comes after something newer
        found["messages"] = {**found["messages"], "rx.in": [read[-1]]}
        found["printed"] = found["printed"][-1:]
        found["computes"] = {}
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("as_holoscan")
def test_a_program_does_the_same_as_on_the_sdk(name: str) -> None:
    theirs = comparable(name, on_the_other_system(name))
    ours = comparable(name, json.loads(json.dumps(outcome(name))))
    expected: dict[str, Any] = {**theirs, **DIFFERENT.get(name, ({}, ""))[0]}
    if "ended" in theirs and name in DIFFERENT:
        expected.pop("ended")
    # A handler for what the SDK raises catches what is raised here.
    kinds = expected.get("raised")
    if kinds and kinds[0] in ours["raised"]:
        expected["raised"] = ours["raised"]
    assert ours == expected
    assert name not in DIFFERENT or expected != theirs, "no longer a difference"


@pytest.mark.parametrize("name", OLDER)
@pytest.mark.usefixtures("as_holoscan")
def test_a_program_of_shared_names_does_the_same(name: str) -> None:
    ours, theirs = outcome_of_shared_names(name, "holoscan"), OLDER_RECORDED[name]
    if name in KEPT:
        assert ours == DIFFERENT_HERE[name][0] != theirs
    else:
        assert ours == theirs


def test_every_program_is_recorded_and_every_difference_has_a_program() -> None:
    assert set(recorded()) == set(PROGRAMS)
    assert {*DIFFERENT, *ANY_ORDER, *IN_REAL_TIME} <= set(PROGRAMS)


def test_the_corpus_uses_the_names_that_programs_use() -> None:
    used: set[str] = set()
    for path in (*FOLDER.glob("*.py"), FOLDER.parents[1] / "decorated" / "programs.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holoscan"):
                used |= {one.name for one in node.names}
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
    assert NAMES - used == set()
