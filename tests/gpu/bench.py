"""A device on the test bench, real or simulated."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu.backend import DeviceUnavailable, find_backend


@dataclass
class Bench:
    """A device on the test bench, the names that go with it, and its host clock."""

    names: Any
    device: Any
    is_simulated: bool
    sleep: Callable[[float], None]
    wait_for: Callable[[threading.Event], bool]

    def launch(self, stream: Any, kernel: gpu.kernel, *args: Any, grid: int = 1, block: int = 32) -> None:
        self.names.launch(
            stream, self.names.LaunchConfig(grid=grid, block=block), kernel.on(self.device), *args
        )

    def timed_event(self) -> Any:
        return self.device.create_event(self.names.EventOptions(timing_enabled=True))

    def zeros(self, count: int, stream: Any) -> Any:
        """Return a device buffer of that many int32, all zero."""
        buffer = self.device.allocate(4 * count, stream=stream)
        buffer.fill(0, stream=stream)
        return buffer

    def read(self, buffer: Any, stream: Any) -> np.ndarray:
        """Return what a buffer of int32 holds once the stream has got there."""
        host = self.names.LegacyPinnedMemoryResource().allocate(buffer.size)
        buffer.copy_to(host, stream=stream)
        stream.sync()
        return np.from_dlpack(host).view(np.int32).copy()

    def partitions(self, *counts: int) -> gpu.Partitions:
        return gpu.partition(self.device, list(counts))


def lack_of_cuda() -> str | None:
    """Return what a real device lacks to be used; None if there is one."""
    try:
        return find_backend("cuda").why_not()
    except DeviceUnavailable as error:
        return str(error)


def cuda() -> ModuleType:
    """Return the names of CUDA, or skip or fail the test where there is no device."""
    lack = lack_of_cuda()
    if lack is not None:
        if os.environ.get("HEADRACE_DEVICE") == "cuda":
            pytest.fail(lack)
        pytest.skip(lack)
    from headrace.gpu import cuda as names

    return names


def spin_host(seconds: float) -> None:
    """Keep the host busy for a while."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
