"""Clocks, which can be asked for what they are."""

from __future__ import annotations

from typing import Any

from headrace.core import Clock as _Clock
from headrace.vocabulary import Inner, InnerClock
from headrace_holoscan.core.components import GXFResource, InnerResourceBase


class ClockInterface:
    """What every clock is."""

    def clock_impl(self) -> Any:
        """Return the clock itself, which wraps no other."""
        return self

    def cast_to(self, type: Any) -> Any:  # noqa: A002 (the SDK's name)
        """Return the clock if it is of a type, else raise RuntimeError."""
        if not isinstance(self, type):
            kind = type.__name__
            raise RuntimeError(
                f"Clock could not be cast to {kind}: it is a {self.__class__.__name__}, not a {kind}"
            )
        return self


class _InnerGXFClock(InnerResourceBase, InnerClock):
    """The state of a clock."""


class GXFClock(ClockInterface, GXFResource):
    """The base of the ready clocks."""

    _headrace = Inner(_InnerGXFClock)


class _AnyClock(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Clock)


class Clock(metaclass=_AnyClock):
    """Any clock: the clock of a scheduler, whatever it is. Made of a clock, it is that clock."""

    def __new__(cls, clock_impl: Any) -> Any:
        """Return the clock."""
        return clock_impl
