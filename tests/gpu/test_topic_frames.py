"""Frames of a device that a topic takes to another program while the pipeline goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import Application, CountCondition, IOSpec, gpu
from headrace.core import EndedBy
from headrace.tensor.copies import read_on_host
from tests.gpu.bench import Bench
from tests.gpu.test_recorded_frames import Camera
from tests.harness import PATIENCE, Step, wait_until

pytest.importorskip("headrace.link.device")
FRAMES = 20
FAULT = IOSpec.QueuePolicy.FAULT


@pytest.fixture(autouse=True)
def _of_this_process(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if bench.is_simulated != (gpu.backend() == "sim"):
        pytest.skip("pipelines run on the kind of device that the process uses")
    monkeypatch.setenv("HEADRACE_TOPICS", str(tmp_path / "topics"))


class PatientCamera(Camera):
    """Begins when somebody receives its frames."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if not self.number:
            wait_until(lambda: self.fragment.topics()["export frames"].subscribers, "the receiver has joined")
        super().compute(op_input, op_output, context)


class Sender(Application):
    def compose(self) -> None:
        camera = PatientCamera(self, CountCondition(self, FRAMES), reuses=False, name="camera")
        self.export_topic("frames", camera, policy=FAULT)


class Receiver(Application):
    def __init__(self) -> None:
        super().__init__([])
        self.seen: list[tuple[int, int]] = []

    def compose(self) -> None:
        def read(op: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")["frame"]
            stream = context.allocate_cuda_stream("mine")
            (array,) = read_on_host([frame], stream)
            self.seen.append((int(array.min()), int(array.max())))

        self.import_topic(
            "frames", Step(self, inputs=["in"], body=read, name="read"), policy=FAULT, ends_with_topic=True
        )


def test_frames_of_a_device_arrive_as_they_were_emitted() -> None:
    receiver, sender = Receiver(), Sender([])
    ended = receiver.run_async()
    sent = sender.run_async()
    sender.wait_until_started(PATIENCE)
    publication = sender.topics()["export frames"]
    assert sent.result(PATIENCE).ended_by is EndedBy.FINISHED
    assert ended.result(PATIENCE).ended_by is EndedBy.FINISHED
    assert receiver.seen == [(number, number) for number in range(FRAMES)]
    assert publication.lost == 0
