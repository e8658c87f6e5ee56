"""Application: the fragment that a program runs, with its command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from headrace.application import Application as _Application
from headrace.vocabulary import Inner
from headrace.vocabulary import InnerApplication as _InnerApplication
from headrace_holoscan.core.command_line import CLIOptions, parse
from headrace_holoscan.core.errors import fail, raises_runtime_errors
from headrace_holoscan.core.fragment import Fragment, InnerFragment, class_text, text
from headrace_holoscan.core.tracking import track_parts
from headrace_holoscan.flow_graphs import FragmentFlowGraphImpl
from headrace_holoscan.lenience import tell


class InnerApplication(InnerFragment, _InnerApplication):
    """The state of an application, and what the SDK does otherwise."""

    fragment_graph_type: ClassVar[Any] = FragmentFlowGraphImpl
    cli_options: CLIOptions

    @property
    def host_options(self) -> dict[str, str]:
        """What the command line says of processes; nothing for a program that is not made of fragments."""
        given = self.cli_options.variables
        if given.keys() & {"HEADRACE_DRIVER", "HEADRACE_WORKER"}:
            self.fragment.compose_graph()
            if not self.fragment.fragment_graph.fragments:
                tell(
                    "the program has no fragments, and runs in this process",
                    "it needs fragments for processes",
                )
                return {}
        return given


class Application(Fragment, _Application):  # type: ignore[misc]
    """A pipeline; subclass it, write `compose`, and call `run`.

    Parameters
    ----------
    argv
        The command line, which begins with the interpreter; that of the process unless given.
    """

    _headrace = Inner(InnerApplication)
    description = text("description")
    version = text("version")

    def __init__(self, argv: Sequence[str] | None = None, *args: Any, **kwargs: Any) -> None:
        left, self._headrace.cli_options = parse(argv)
        _Application.__init__(self, left, *args, **kwargs)
        self._headrace.take_names(kwargs.get("name", ""))
        self.description = class_text(self, "description")
        self.version = class_text(self, "version", "0.0.0")
        self._headrace.chosen_file = self.options.config_path

    @property
    def options(self) -> CLIOptions:
        """The options of the command line."""
        found: CLIOptions = self._headrace.cli_options
        return found

    @raises_runtime_errors
    def add_fragment(self, fragment: Any) -> None:
        """Add a fragment."""
        if any(each is not fragment and each.name == fragment.name for each in self.fragment_graph.fragments):
            fail(f"fragment {fragment.name!r}: another fragment has this name (duplicate name)")
        super().add_fragment(fragment)

    @property
    def application(self) -> Any:
        """Itself."""
        return self

    @application.setter
    def application(self, app: Any) -> None:
        raise AttributeError("an application is a part of itself alone")

    def track_distributed(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return a tracker for each fragment, by name; none if the application has no fragments."""
        return dict(track_parts(self, *args, **options))

    def __repr__(self) -> str:
        return f"<holoscan.Application: name:{self.name}>"
