"""Frames of the simulated device for `frames`: buffers that are given out again once freed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from headrace import gpu
from headrace.gpu import sim

MS = 1e-3


class SimulatedFrames:
    """Buffers that are written and read by kernels that take a random while."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.mistakes: list[tuple[int, int]] = []
        self.asked = self.looked_at = 0
        self.slowness = 1.0

    def fresh(self, stream: Any, number: int) -> Any:
        device = sim.Device(0)
        device.set_current()  # the handle may be one that was kept from another thread
        frame = device.allocate(8, stream=stream.stream)

        def fill(target: np.ndarray[Any, Any]) -> None:
            target.view(np.int64)[0] = number

        self._launch(stream, fill, frame)
        return frame

    def side_stream(self) -> Any:
        return gpu.StreamHandle(gpu.Device(0).create_stream())

    def read(self, stream: Any, frame: Any, number: int) -> None:
        self.asked += 1

        def look(source: np.ndarray[Any, Any]) -> None:
            self.looked_at += 1
            found = int(source.view(np.int64)[0])
            if found != number:
                self.mistakes.append((number, found))

        self._launch(stream, look, frame)

    def other_forms(self, frame: Any) -> list[Callable[[], Any]]:
        return []

    def _launch(self, stream: Any, effect: Callable[..., None], frame: Any) -> None:
        seconds = self.random.choice([0.01, 0.1, 1, 3]) * MS * self.slowness
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), sim.Kernel("k", seconds, effect), frame)
