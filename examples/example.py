"""How the examples with arrays end: what arrives is probed and viewed. And the command line they share."""

import argparse
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from frames import to_host
from penstock import Application, Operator, OperatorSpec, Tensor
from penstock.conditions import CudaStreamCondition


class Example(Application):
    """An application that ends in a probe and a viewer; `options` are what its command line said."""

    def __init__(self, **choices: list[str]) -> None:
        super().__init__()
        self.options = command_line(choices)

    def end_with(self, step: Operator) -> None:
        """Connect a probe and a viewer; both copy to the host, and run when there is nothing to wait for."""
        for name, kind in (("probe", Probe), ("view", View)):
            self.add_flow(step, kind(self, CudaStreamCondition(self, receiver="in"), name=name))


class Probe(Operator):
    """Prints what arrives."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        tensor, frame = receive_on_host(op_input)
        print(f"{tensor.shape} {tensor.dtype} on {tensor.device}, checksum {zlib.crc32(frame.tobytes()):08x}")


class View(Operator):
    """Keeps the last frame, and writes it when the run ends, in a form that any picture viewer opens."""

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
    """Receive a frame, and give it both as it came and where NumPy can read it."""
    tensor = op_input.receive("in")["frame"]
    if tensor.device.is_cuda:
        return tensor, to_host(tensor, op_input.receive_cuda_stream("in"))
    return tensor, np.asarray(tensor)


def command_line(choices: dict[str, list[str]]) -> argparse.Namespace:
    """Read the options that all these examples have, and those with a choice of words."""
    program = Path(sys.argv[0])
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=5, help="how many to send (5)")
    parser.add_argument("--out", type=Path, default=Path("out", f"{program.stem}.ppm"), help="the picture")
    for name, words in choices.items():
        parser.add_argument(f"--{name.replace('_', '-')}", choices=words, default=words[0])
    return parser.parse_args()
