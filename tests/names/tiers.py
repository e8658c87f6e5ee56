"""Which public names are stable. The other public names are provisional; what no `__all__` lists is internal."""

from __future__ import annotations

import enum
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

from headrace import Condition, Fragment, Operator, Resource
from headrace.core import Scheduler
from tests.docs.test_reference import MODULES

ALL = "*"
STABLE = {
    "headrace": ALL,
    "headrace.application": ALL,
    "headrace.core": (
        "Application Arg ArgList Clock Condition ConditionType EndedBy ErrorPolicy ExecutionContext "
        "FeedClosedError FeedFullError Fragment GraphError IOSpec Input InputContext JoinError "
        "MetadataDictionary MetadataPolicy Operator OperatorOutcome OperatorSpec Outcome Output "
        "OutputContext ParameterError PortError QueueFullError ResentMemoryWarning Resource Scheduler "
        "SchedulingStatusType StuckError Subgraph UnansweredError UnreceivedMessageWarning aligned "
        "at_rate dead_letter latest_within op restart retry reuse_last skip substitute window"
    ),
    "headrace.conditions": ALL,
    "headrace.resources": (
        "Allocator BlockMemoryPool Clock CudaAllocator CudaGreenContext CudaGreenContextPool "
        "CudaStreamPool ManualClock MemoryStorageType OrConditionCombiner RealtimeClock "
        "StreamOrderedAllocator SyntheticClock ThreadPool UnboundedAllocator"
    ),
    "headrace.schedulers": "DefaultScheduler EventBasedScheduler GreedyScheduler MultiThreadScheduler Scheduler",
    "headrace.operators": (
        "BayerDemosaicOp CameraSimOp FeedOp FormatConverterOp HolovizOp InferenceOp PingRxOp "
        "PingTxOp ProbeOp ResultsOp V4L2VideoCaptureOp VideoReaderOp "
        "VideoWriterOp"
    ),
    "headrace.capture": "CaptureError CaptureRefused Segment",
    "headrace.drawing": ALL,
    "headrace.observe": ("DataLogger Goal PortRecorder Recording Tracker TraceWriter replay watch"),
    "headrace.tensor": "DLDataType DLDevice DLDeviceType Tensor TensorError TensorMap as_message as_tensor",
    "headrace.gpu": (
        "DeviceUnavailable Partition PartitionError Partitions StreamHandle arrays backend "
        "current_stream kernel partition use_stream when_done"
    ),
    "headrace.testing": ALL,
    "headrace.video": "VideoReader VideoWriter play write_video",
}
EVERY = ("headrace", *MODULES.values())
BASES = (Fragment, Operator, Condition, Resource, Scheduler)
HERE = Path(__file__).parent
SNAPSHOT = HERE / "stable.json"


def public(module: str) -> list[str]:
    """Return the names that a module exports, but those of cuda.core that `headrace.gpu` has, too."""
    names = set(importlib.import_module(module).__all__)
    if module == "headrace.gpu.sim":
        names -= set(importlib.import_module("headrace.gpu").__all__)
    return sorted(names)


def stable(module: str) -> list[str]:
    """Return the stable names of a module."""
    chosen = STABLE.get(module, "")
    return public(module) if chosen == ALL else chosen.split()


def snapshot() -> dict[str, Any]:
    """Return what a program can notice of each stable name: its parameters, and those of its methods."""
    found: dict[str, Any] = {}
    known: list[tuple[Any, str]] = []
    for module in EVERY:
        for name in stable(module):
            value = getattr(importlib.import_module(module), name)
            same = next((other for each, other in known if each is value), None)
            found[f"{module}.{name}"] = f"= {same}" if same else _described(value)
            known.append((value, f"{module}.{name}"))
    return found


def _described(value: Any) -> Any:
    if isinstance(value, enum.EnumMeta):
        return sorted(value.__members__)
    if inspect.isclass(value):
        return {"()": _parameters(value), **_members(value)}
    return _parameters(value) if callable(value) else type(value).__name__


def _members(cls: type) -> dict[str, str]:
    """Return the members of a class, but those that it has from the base classes of users."""
    members = {}
    for owner in reversed(cls.__mro__):
        if owner.__module__.startswith("headrace") and (owner is cls or owner not in BASES):
            for name, member in vars(owner).items():
                inner = getattr(member, "__func__", member)
                if not name.startswith("_"):
                    members[name] = _parameters(inner) if inspect.isfunction(inner) else "attribute"
    return dict(sorted(members.items()))


def _parameters(function: Any) -> str:
    """Return a signature without its annotations, which may become more exact."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a class that is built in
        return ""
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    kept = [each.replace(default=...) if "<" in _default(each) else each for each in plain]
    return str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))


def _default(parameter: inspect.Parameter) -> str:
    """Return a default as text, which has an address or a module in it if it is an object."""
    return "" if parameter.default is inspect.Parameter.empty else repr(parameter.default)


def write() -> None:
    """Write the snapshot."""
    SNAPSHOT.write_text(json.dumps(snapshot(), indent=1) + "\n")
