"""Executor: what an application is run by; here it runs itself."""

from __future__ import annotations

from typing import Any

from headrace_holoscan.core.arguments import Sealed


class Executor(Sealed):
    """The executor of an application, which has no context of GXF."""

    context = None
    context_uint64 = 0

    def __init__(self, fragment: Any) -> None:
        self.fragment = fragment
        self._sealed = True

    def run(self, graph: Any = None) -> None:
        """Run the application."""
        self.fragment.run()

    def interrupt(self) -> None:
        """Stop the run."""
        self.fragment.stop_execution()
