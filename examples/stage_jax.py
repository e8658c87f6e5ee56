"""A stage with JAX: frames are blurred by a jitted function, on the GPU if JAX and penstock both find one.

JAX takes no stream from outside; it has streams of its own. So the frame goes into JAX's order and the result
comes back into the operator's, each by a wait on the device that DLPack arranges; the host waits for neither.
"""

from typing import Any

from example import Example
from frames import Transmit
from needs import needs
from penstock import CountCondition, Operator, OperatorSpec, as_tensor, gpu

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
    """Blurs frames a little."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")["frame"]
        stream = op_input.receive_cuda_stream("in") if frame.device.is_cuda else None
        blurred = mean_of_neighbours(jnp.from_dlpack(frame))  # JAX's stream waits for the frame
        op_output.emit({"frame": as_tensor(blurred, stream=stream)}, "out")  # ours waits for JAX's


class Blurring(Example):
    def compose(self):
        transmitted = Transmit(self, CountCondition(self, self.options.frames), on_gpu=ON_GPU)
        blurred = Blur(self, name="blur")
        self.add_flow(transmitted, blurred)
        self.end_with(blurred)


if __name__ == "__main__":
    Blurring().run()
