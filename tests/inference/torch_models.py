"""Small modules of PyTorch, saved where a test needs them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


class Pair(torch.nn.Module):
    """Takes two tensors and returns two."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a + b, a - b


class Nested(torch.nn.Module):
    """Takes a dict and returns a list of a tensor and a dict."""

    def forward(self, parts: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return parts["left"], {"sum": parts["left"] + parts["right"], "first": parts["left"][:1]}


class Stateful(torch.nn.Module):
    """Returns a buffer that each run changes, and its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count += 1
        return self.count, x


def exported(path: Path, module: Any, *example: Any, dynamic: Any = None) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), example, dynamic_shapes=dynamic)
        torch.export.save(program, str(path))
    return str(path)


def scripted(path: Path, module: Any, yaml: str = "") -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        torch.jit.script(module.eval()).save(str(path))
    if yaml:
        path.with_suffix(".yaml").write_text(yaml)
    return str(path)
