"""What is measured: a scenario is one piece of work that several ways do, and a way runs in a process of its own.

A way returns its figure and an answer, and may add a note. The answers of a scenario must be equal before a figure
counts: who does other work is not faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

HOLOSCAN = "Holoscan SDK"
SDKS = ("holoscan", "holoscan-cu12", "holoscan-cu13")  # the distributions of its versions


@dataclass(frozen=True)
class Way:
    """One way to do the work: a function of this package by name, with its arguments, and what it needs."""

    name: str
    function: str
    arguments: tuple[Any, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def is_headrace(self) -> bool:
        """Return whether it is measured once more with a compiled build."""
        return self.name.startswith("headrace")

    def missing(self) -> str | None:
        """Return what this interpreter lacks for it."""
        if "holoscan" in self.needs and not sdk_version():
            return f"the {HOLOSCAN} (--holoscan-python)"
        return next((need for need in self.needs if find_spec(need) is None), None)

    def measure(self, share: float) -> dict[str, Any]:
        """Return the figure, the answer and the note, of a share of the full work."""
        module, _, name = self.function.partition(":")
        found = getattr(import_module(f"benchmarks.sides.{module}"), name)(*self.arguments, share=share)
        return dict(zip(("figure", "answer", "note"), (*found, ""), strict=False))


def sdk_version() -> str:
    """Return the version of the SDK, or nothing: the module `holoscan` may be the one of headrace-holoscan."""
    for distribution in SDKS:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return ""


@dataclass(frozen=True)
class Scenario:
    """The ways of one piece of work; figures of all are ratios of the first way's."""

    name: str
    title: str
    unit: str
    ways: tuple[Way, ...]
    needs_gpu: bool = False
    more_is_better: bool = False
    rounds: int = 5
    timeout: float = 300.0
