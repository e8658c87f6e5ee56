"""Application: the fragment that a program runs, with its command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.application import Application as _Application
from headrace.compat.holoscan.core.command_line import parse
from headrace.compat.holoscan.core.fragment import Fragment
from headrace.compat.holoscan.core.tracking import track_parts


class Application(Fragment, _Application):  # type: ignore[misc]
    """A pipeline; subclass it, write `compose`, and call `run`.

    Parameters
    ----------
    argv
        The command line, which begins with the interpreter; that of the process unless given.
    """

    def __init__(self, argv: Sequence[str] | None = None, *args: Any, **kwargs: Any) -> None:
        left, self.options = parse(argv)
        _Application.__init__(self, left, *args, **kwargs)
        self._take_names(kwargs.get("name", ""))
        self.description = getattr(type(self), "description", "")
        self.version = getattr(type(self), "version", "0.0.0")
        self._chosen_file = self.options.config_path
        self._host_options = self.options.variables

    @property
    def application(self) -> Any:
        """Itself."""
        return self

    def track_distributed(
        self,
        num_start_messages_to_skip: int = 10,
        num_last_messages_to_discard: int = 10,
        latency_threshold: int = 0,
        is_limited_tracking: bool = False,
    ) -> dict[str, Any]:
        """Return a tracker for each fragment, by name; none if the application has no fragments."""
        return dict(
            track_parts(
                self,
                num_start_messages_to_skip,
                num_last_messages_to_discard,
                latency_threshold,
                is_limited_tracking,
            )
        )

    def __repr__(self) -> str:
        return f"<holoscan.Application: name:{self.name}>"
