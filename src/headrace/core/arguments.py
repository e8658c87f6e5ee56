"""Arg and ArgList: named values for an operator, as from a configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Arg:
    """One named value."""

    name: str
    value: Any = None


class ArgList(list[Arg]):
    """Several named values: what :meth:`Fragment.from_config` returns for a section."""

    @classmethod
    def of(cls, mapping: dict[str, Any]) -> ArgList:
        """Make a list from a mapping of names to values."""
        return cls(Arg(name, value) for name, value in mapping.items())

    @property
    def name(self) -> str:
        """The names, joined by commas."""
        return ", ".join(arg.name for arg in self)
