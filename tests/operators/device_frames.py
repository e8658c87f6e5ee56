"""A camera and a reader of tensors on a simulated device."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import CountCondition
from headrace.resources import UnboundedAllocator
from headrace.tensor.copies import simulated_memory
from tests.harness import MS, Step, launch

SHAPE = (4, 3)


def camera(app: Any, frames: int, name: str = "x") -> Step:
    """Return a source whose frames are written on its stream, a millisecond after they are sent."""
    memory = UnboundedAllocator()

    def body(self: Any, i: Any, o: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("camera")
        o.set_cuda_stream(stream, "out")
        tensor = memory.allocate_tensor(SHAPE, np.float32, stream=stream)
        view, number = simulated_memory(tensor), self.ticks
        launch(stream, MS, lambda: view.fill(number))
        o.emit({name: tensor}, "out")

    return Step(app, CountCondition(app, frames), outputs=["out"], body=body, name="camera")


def reader(app: Any, seen: list[dict[str, float]], hold: list[Any] | None = None) -> Step:
    """Return a sink that reads tensors of the device on its stream, slowly."""

    def body(self: Any, i: Any, o: Any) -> None:
        message = i.receive("in")
        stream = i.receive_cuda_stream("in")
        views = {name: simulated_memory(tensor) for name, tensor in message.items()}
        launch(stream, 3 * MS, lambda: seen.append({name: float(view[0, 0]) for name, view in views.items()}))
        if hold is not None:
            hold.append(message)

    return Step(app, inputs=["in"], body=body, name="reader")
