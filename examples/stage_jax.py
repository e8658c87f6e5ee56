"""A JAX stage that blurs frames with a jitted function, on the GPU if both JAX and headrace find one.

JAX accepts no stream from outside and uses its own. JAX's stream therefore waits for the frame, and the operator's
stream for the result. DLPack arranges both waits on the device; the host does not wait.
"""

from __future__ import annotations

from typing import Any

from headrace import CountCondition, Operator, OperatorSpec, as_tensor, gpu
from shared.example import Example
from shared.frames import Transmit
from shared.needs import needs

needs("jax")
import jax
import jax.numpy as jnp

ON_GPU = jax.default_backend() == "gpu" and gpu.backend() == "cuda"


@jax.jit
def mean_of_neighbours(frame: jax.Array) -> jax.Array:
    wide = frame.astype(jnp.int32)
    across = jnp.roll(wide, 1, axis=1) + jnp.roll(wide, -1, axis=1)
    along = jnp.roll(wide, 1, axis=0) + jnp.roll(wide, -1, axis=0)
    return ((wide + across + along) // 5).astype(frame.dtype)


class Blur(Operator):
    """Replaces each pixel by the mean of itself and its four neighbours."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")["frame"]
        stream = op_input.receive_cuda_stream("in") if frame.device.is_cuda else None
        blurred = mean_of_neighbours(jnp.from_dlpack(frame))  # JAX's stream waits for the frame
        result = as_tensor(blurred, stream=stream)  # the operator's stream waits for JAX's
        op_output.emit({"frame": result}, "out")


class Blurring(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=ON_GPU)
        blurred = Blur(self, name="blur")
        self.add_flow(transmitted, blurred)
        self.end_with(blurred)


if __name__ == "__main__":
    Blurring().run()
