"""PatientCondition: the base of conditions that wait for something to come back, from whichever thread.

Whoever holds it may be no part of the run, so the run does not end at once when nothing else can run. It ends if
nothing came back for a second; its outcome and a warning then say what was waited for.
"""

from __future__ import annotations

from typing import ClassVar

from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType

_PATIENCE_NS = 1_000_000_000
_READY = (SchedulingStatusType.READY, None)


class PatientCondition(Condition):
    """Waits to be told that something came back, for a second at least.

    A subclass writes `is_there`, `starving` and `warning`, and calls `tell` when something has come back.
    """

    polled = False
    depends_on_ports = False
    matters_while_blocked = False
    warning: ClassVar[tuple[str, str]]
    """The logger, and the text with places for the name of the operator and for what it waits for."""

    # Since when it is not there and nothing came back, and whether something came back since the last look.
    _since: int | None = None
    _is_told = False
    _has_warned = False

    def is_there(self) -> bool:
        """Return whether what the operator needs is there now."""
        raise NotImplementedError

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when it is there; else wait to be told, for a second at least."""
        is_told, self._is_told = self._is_told, False
        # Looked for again where something came back in between: an announcement in a check is not heard.
        if self.is_there() or (self._is_told and self.is_there()):
            self._since = None
            return _READY
        if self._since is None or is_told:
            self._since = timestamp
        until = self._since + _PATIENCE_NS
        if timestamp < until:
            return SchedulingStatusType.WAIT_TIME, until
        self._warn()
        return SchedulingStatusType.WAIT, None

    def tell(self) -> None:
        """Ask again, because something came back; called from any thread, in finalizers too."""
        self._is_told = True
        self.notify_scheduler()

    def _warn(self) -> None:
        if not self._has_warned and self._headrace.node is not None:
            self._has_warned = True
            import logging  # needed only here

            logger, text = self.warning
            logging.getLogger(logger).warning(text, self._headrace.node.name, self.starving)

    def detach(self) -> None:
        """Leave the run."""
        self._since = None
        self._has_warned = False
        super().detach()
