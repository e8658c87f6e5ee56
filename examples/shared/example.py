"""What every array example ends with: a probe, a viewer and the same command line."""

from __future__ import annotations

import argparse
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from headrace import Application, CudaStreamCondition, Operator, OperatorSpec, Tensor, as_tensor

from .frames import to_host


class Example(Application):
    """An application that ends in a probe and a viewer; `options` holds the parsed command line."""

    def __init__(self, **choices: list[str]) -> None:
        super().__init__()
        self.options = command_line(choices)

    def end_with(self, step: Operator) -> None:
        """Connect a probe and a viewer to a step.

        Both copy the frame to the host. The condition lets them run only when the GPU is done with the frame, so
        that no worker thread waits in the copy.
        """
        for name, kind in (("probe", Probe), ("view", View)):
            self.add_flow(step, kind(self, CudaStreamCondition(self, receiver="in"), name=name))


class Probe(Operator):
    """Prints the shape, dtype, device and checksum of each frame."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        tensor, frame = receive_on_host(op_input)
        print(f"{tensor.shape} {tensor.dtype} on {tensor.device}, checksum {zlib.crc32(frame.tobytes()):08x}")


class View(Operator):
    """Keeps the last frame and writes it at the end of the run as a PPM file, which any picture viewer opens."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.last: np.ndarray | None = None

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        _, self.last = receive_on_host(op_input)

    def stop(self) -> None:
        if self.last is None:
            return
        assert isinstance(self.fragment, Example)
        path, (height, width, _) = self.fragment.options.out, self.last.shape
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P6 %d %d 255\n" % (width, height) + self.last.tobytes())
        print(f"the last frame is in {path}")


def receive_on_host(op_input: Any) -> tuple[Tensor, np.ndarray]:
    """Receive a frame; return the tensor that arrived and a NumPy array with its contents."""
    tensor = as_tensor(op_input.receive("in")["frame"])
    if tensor.device.is_cuda:
        return tensor, to_host(tensor, op_input.receive_cuda_stream("in"))
    return tensor, np.asarray(tensor)


def command_line(choices: dict[str, list[str]]) -> argparse.Namespace:
    """Parse the options that all array examples have, and one more option for each entry of `choices`."""
    program = Path(sys.argv[0])
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=5, help="number of frames to send (5)")
    parser.add_argument(
        "--out", type=Path, default=Path("out", f"{program.stem}.ppm"), help="file for the last frame"
    )
    for name, words in choices.items():
        parser.add_argument(f"--{name.replace('_', '-')}", choices=words, default=words[0])
    return parser.parse_args()
