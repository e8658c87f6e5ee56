"""Kernels in a trace, with a stand-in for CUPTI."""

from __future__ import annotations

import enum
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headrace.observe.events import cupti_activity
from headrace.observe.events.cupti_activity import CuptiActivity
from headrace.observe.events.records import OperatorInfo
from headrace.resources import RealtimeClock
from headrace.schedulers import GreedyScheduler
from tests.harness import Step, source
from tests.harness.devices import use_device
from tests.observe.traces.traces import traced

BEHIND = 1_000_000_000  # nanoseconds that CUPTI's clock is behind the host's


class Kind(enum.IntEnum):
    CONCURRENT_KERNEL = 10
    MEMCPY = 1
    MEMSET = 2
    EXTERNAL_CORRELATION = 39
    DRIVER = 4
    RUNTIME = 5


class Cupti(ModuleType):
    """A CUPTI whose kernels are launched by the tests: as the package, records come only when they are flushed."""

    ActivityKind = Kind
    ActivityMemcpyKind = enum.IntEnum("ActivityMemcpyKind", {"HTOD": 1})
    ExternalCorrelationKind = enum.IntEnum("ExternalCorrelationKind", {"CUSTOM0": 3, "CUSTOM2": 5})

    def __init__(self) -> None:
        super().__init__("cupti.cupti")
        self.enabled: set[int] = set()
        self.ids: list[tuple[int, int]] = []
        self.records: list[Any] = []
        self.calls = 0
        self.last = 0
        self.held: int | None = None

    def activity_register_callbacks(self, request: Any, complete: Any) -> None:
        assert request() == (1 << 20, 0)
        self.complete = complete

    def activity_enable(self, kind: int) -> None:
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.remove(kind)

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        self.ids.append((kind, number))

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        last, number = self.ids.pop()
        assert last == kind
        return number

    def activity_flush_all(self, flag: int) -> None:
        records, self.records = self.records, []
        self.complete(records)
        for record in records:  # their memory is used again
            record.__dict__.clear()

    # The host's clock, of which the device's is read at the same moment, however long the machine takes for it.

    def perf_counter_ns(self) -> int:
        self.last = time.perf_counter_ns() if self.held is None else self.held
        self.held = None
        return self.last

    def get_timestamp(self) -> int:
        self.held = self.last
        return self.last - BEHIND

    def launch(self, kind: Kind, started: int, ended: int, **fields: Any) -> None:
        """Record work on the device, by times of the host."""
        self.calls += 1
        call = [kind for kind in (Kind.DRIVER, Kind.RUNTIME) if kind in self.enabled]
        if call:
            self.records.append(SimpleNamespace(kind=call[0], correlation_id=self.calls))
        if call and Kind.EXTERNAL_CORRELATION in self.enabled:
            # One record for the last id of each kind.
            for pushed, number in dict(self.ids).items():
                fields_of_id = {"external_kind": pushed, "external_id": number, "correlation_id": self.calls}
                self.records.append(SimpleNamespace(kind=Kind.EXTERNAL_CORRELATION, **fields_of_id))
        times = {"start": started - BEHIND, "end": ended - BEHIND}
        place = {"device_id": 0, "stream_id": 14, "correlation_id": self.calls}
        self.records.append(SimpleNamespace(kind=kind, **times, **place, **fields))


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Cupti:
    stand_in = Cupti()
    monkeypatch.setitem(sys.modules, "cupti", ModuleType("cupti"))
    monkeypatch.setitem(sys.modules, "cupti.cupti", stand_in)
    use_device(monkeypatch, "cuda")
    # There is no CUDA to make streams with.
    monkeypatch.setattr("headrace._runtime.streams.run_streams.is_in_use", lambda: False)
    monkeypatch.setattr(cupti_activity, "time", stand_in)
    return stand_in


def real_time(app: Any) -> Any:
    return GreedyScheduler(app, clock=RealtimeClock(app))


SHAPE = {
    "grid_x": 4,
    "grid_y": 1,
    "grid_z": 1,
    "block_x": 256,
    "block_y": 1,
    "block_z": 1,
    "registers_per_thread": 32,
    "name": "gain",
}


def test_kernels_are_shown_with_the_compute_that_launched_them(cupti: Cupti, tmp_path: Path) -> None:
    def work(self: Step, i: Any, o: Any) -> None:
        i.receive("in")
        now = time.perf_counter_ns()
        cupti.launch(Kind.MEMCPY, now, now + 1000, copy_kind=1, bytes=64)
        cupti.launch(Kind.CONCURRENT_KERNEL, now + 2000, now + 5000, **SHAPE)
        began.append(now)

    def compose(app: Any) -> None:
        app.add_flow(source(app, [1, 2]), Step(app, inputs=["in"], body=work, name="work"))

    began: list[int] = []
    trace = traced(compose, tmp_path / "out.json", real_time)
    assert trace.header["kernels"] == "shown"
    shown = trace.of("X", cat="kernel")
    assert [(event["name"], event["args"]["operator"], event["args"]["compute"]) for event in shown] == [
        ("copy HTOD", "work", 0),
        ("gain", "work", 0),
        ("copy HTOD", "work", 1),
        ("gain", "work", 1),
    ]
    assert [event["dur"] for event in shown] == [1, 3, 1, 3]
    assert shown[0]["args"]["bytes"] == 64
    assert shown[1]["args"]["grid"] == [4, 1, 1]
    # Both clocks were compared: the kernel is shown where it was.
    at = round(shown[0]["ts"] * 1000) + trace.header["started_ns"]
    assert at == began[0]
    assert not cupti.enabled


def test_ids_of_another_tool_are_left_alone(cupti: Cupti) -> None:
    activity = CuptiActivity()
    assert activity.start()

    def compute(*arguments: Any) -> None:
        cupti.activity_push_external_correlation_id(cupti.ExternalCorrelationKind.CUSTOM0, 4711)
        cupti.launch(Kind.CONCURRENT_KERNEL, 10, 20, **SHAPE)
        cupti.activity_pop_external_correlation_id(cupti.ExternalCorrelationKind.CUSTOM0)

    activity.around(OperatorInfo("operator", 7), lambda: 3, compute)(None, None, None)
    (found,) = activity.take(is_last=True)
    assert (found.operator, found.compute) == (7, 3)
    activity.stop()


def test_work_that_no_operator_launched_has_a_track_of_its_own(cupti: Cupti) -> None:
    activity = CuptiActivity()
    assert activity.start()
    cupti.launch(Kind.MEMSET, 10, 20, bytes=8)
    (found,) = activity.take(is_last=True)
    assert (found.name, found.operator, found.arguments) == ("fill", None, {"bytes": 8})
    activity.stop()


def test_memory_for_records_is_bounded(cupti: Cupti, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti_activity, "_MOST", 10)
    activity = CuptiActivity()
    activity.start()
    for number in range(50):
        cupti.launch(Kind.MEMSET, number, number + 1, bytes=8)
    assert len(activity.take()) == 10
    assert activity.state == "shown in part: there were more than could be written"
    activity.stop()


def test_a_refusal_is_told_in_the_trace(
    cupti: Cupti, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(kind: int) -> None:
        raise RuntimeError("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")

    monkeypatch.setattr(cupti, "activity_enable", refuse)
    trace = traced(lambda app: app.add_operator(source(app, [1])), tmp_path / "out.json", real_time)
    assert trace.header["kernels"] == "not shown: CUPTI refused: MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
    assert "MULTIPLE_SUBSCRIBERS" in caplog.text


def test_without_the_package_there_are_none(
    cupti: Cupti, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)
    trace = traced(lambda app: app.add_operator(source(app, [1])), tmp_path / "out.json", real_time)
    assert trace.header["kernels"] == "not shown: the package cupti-python is not installed"


def test_a_package_that_cannot_be_imported_is_told_apart(
    cupti: Cupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError("No module named 'elftools'", name="elftools")

    monkeypatch.setattr(cupti_activity, "import_module", fail)
    activity = CuptiActivity()
    assert not activity.start()
    assert activity.state == "not shown: cupti-python cannot be imported: No module named 'elftools'"
