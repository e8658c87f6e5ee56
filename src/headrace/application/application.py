"""Application: the fragment that a program runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.application.fragment import Fragment
from headrace.core.config import Config, take_options

if TYPE_CHECKING:
    from headrace.core.config import Settings


class Application(Fragment):
    """A pipeline; subclass it, write `compose`, and call `run`.

    Parameters
    ----------
    argv
        The command line, kept in ``app.argv``; ``sys.argv`` unless given.
    name
        The application's name; the class's name unless given.
    """

    def __init__(self, argv: Sequence[str] | None = None, *args: Any, name: str = "", **kwargs: Any) -> None:
        if isinstance(argv, str):
            raise TypeError(
                f"{type(self).__name__}: argv must be a list of words such as sys.argv, not {argv!r}; "
                f"a name is given by keyword: {type(self).__name__}(name={argv!r})"
            )
        super().__init__(name, *args, **kwargs)
        self.argv: list[str] = list(sys.argv if argv is None else argv)
        self._options: list[tuple[str, str]] = []
        self.description = ""
        self.version = ""

    def config(
        self, config_file: Settings | None = None, *, argv: bool = False, reload: bool = False
    ) -> Config | None:
        """Read the settings of a YAML file or a dict, if one is given, and return the configuration in use.

        The environment may name another file (``HEADRACE_CONFIG=file.yaml``) and set single values
        (``HEADRACE_SET_camera__fps=30``).

        Parameters
        ----------
        config_file
            The path of the file, or a dict of sections.
        argv
            Whether the command line may do the same: ``--config file.yaml`` and ``--set camera.fps=30``, any number
            of times. These options are removed from ``app.argv``; the rest stays there for the program.
        reload
            Whether SIGHUP reads the file again, as :meth:`reload_config` does; the log says what came of it.
            ``HEADRACE_RELOAD=1`` asks for the same.
        """
        if reload or (config_file is not None and os.environ.get("HEADRACE_RELOAD")):
            from headrace.core.reload import is_asked_for, reload_on_hangup

            if reload or is_asked_for():
                reload_on_hangup(self)
        if not argv:
            return super().config(config_file)
        # Keep the options: argv no longer has them when config is called again.
        self._options += take_options(self.argv)
        self._config = Config(config_file, self._options)
        return self._config
