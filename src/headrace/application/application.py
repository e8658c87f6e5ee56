"""Application: the fragment that a program runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.application.fragment import Fragment, InnerFragment
from headrace.application.parts import FragmentGraph, check_part, compose_parts, connect_parts, end_named
from headrace.core.config import Config, take_options
from headrace.core.construction import Inner
from headrace.core.values import is_set

if TYPE_CHECKING:
    from headrace.core.config import Settings
    from headrace.core.graph import PortPairs
    from headrace.core.operator import Operator
    from headrace.core.ports import IOSpec
    from headrace.core.wiring import End, Ends


class InnerApplication(InnerFragment):
    """The state of an application."""

    fragment: Application
    fragment_graph_type: ClassVar[type[FragmentGraph]] = FragmentGraph

    def __init__(self, application: Application) -> None:
        super().__init__(application)
        # The options that the command line gave to `config`.
        self.options: list[tuple[str, str]] = []

    def begin_graph(self) -> None:
        """Begin with what compose declares."""
        super().begin_graph()
        self.fragment.fragment_graph = self.fragment_graph_type()

    def declare_in_part(
        self, part: Fragment, call: str, declare: Callable[..., None], topic: str, port: str, options: Any
    ) -> None:
        """Declare a topic when the part that has the operator has been composed."""
        self.check_composing(call)
        check_part(self.fragment, part, call)
        self.fragment.fragment_graph.add(part)
        self.part_topics.append((part, lambda: declare(topic, end_named(part, port, call), **options)))

    def compose_more(self) -> list[Operator]:
        """Compose the fragments that it consists of, and return the operators that they created."""
        made = compose_parts(self.fragment)
        super().compose_more()
        return made

    def complete_graph(self, check_resources: Callable[[], None]) -> None:
        """Keep only the operators of the part that runs in this process, if the application was cut."""
        if self.cut is not None:
            self.cut.apply()
            for part in self.fragment.fragment_graph.fragments:
                if part not in self.parts_here:  # its graph is as it was composed, and changes elsewhere
                    part._headrace.graph_of_whole = None
        super().complete_graph(check_resources)

    @property
    def every_data_logger(self) -> list[Any]:
        """The loggers that were added, to the application or to one of its fragments."""
        parts = (logger for part in self.parts_here for logger in part._headrace.data_loggers)
        return [*super().every_data_logger, *parts]

    @property
    def parts_here(self) -> list[Any]:
        """The fragments that run in this process."""
        parts = self.fragment.fragment_graph.fragments
        return [part for part in parts if self.cut is None or part.name == self.cut.part]


class Application(Fragment):
    """A pipeline; subclass it, write `compose`, and call `run`.

    Parameters
    ----------
    argv
        The command line, kept in ``app.argv``; ``sys.argv`` unless given.
    name
        The application's name; the class's name unless given.
    """

    fragment_graph: FragmentGraph
    """The fragments that compose added, and the flows between them."""
    _headrace = Inner(InnerApplication)

    def __init__(self, argv: Sequence[str] | None = None, *args: Any, name: str = "", **kwargs: Any) -> None:
        if isinstance(argv, str):
            raise TypeError(
                f"{type(self).__name__}: argv must be a list of words such as sys.argv, not {argv!r}; "
                f"a name is given by keyword: {type(self).__name__}(name={argv!r})"
            )
        for word in ("gpus", "cpus", "on_loss"):
            if word in kwargs:
                raise TypeError(
                    f"{type(self).__name__}: {word}= is for the fragments of an application, which may run in "
                    "processes of their own; give it to one of them"
                )
        super().__init__(None, name, *args, **kwargs)
        self.argv: list[str] = list(sys.argv if argv is None else argv)
        self.description = ""
        """What the application does, in words."""
        self.version = ""
        """Its version."""

    @property
    def application(self) -> Application:
        """This application."""
        return self

    # An application of several fragments.

    def add_fragment(self, fragment: Fragment) -> None:
        """Add a fragment to the application, which then consists of fragments; `add_flow` adds those it connects.

        A fragment is made in `compose` with the application as its first argument, ``Edge(self, "edge")``. Its
        `compose` is called after that of the application. Its operators are called ``edge.camera`` and so on. All
        fragments run together, in this process.
        """
        call = f"add_fragment({getattr(fragment, 'name', fragment)!r})"
        self._headrace.check_composing(call)
        check_part(self, fragment, call)
        self.fragment_graph.add(fragment)

    def add_flow(
        self,
        upstream_op: Ends | Fragment,
        downstream_op: Ends | Fragment,
        port_pairs: PortPairs | Ends | None = None,
        *more: Ends,
        size: int | None = None,
        policy: IOSpec.QueuePolicy | None = None,
    ) -> None:
        """Connect operators, as :meth:`Fragment.add_flow` does, or two fragments.

        The port map of a flow between fragments names operators and ports: ``{("camera.out", "detector.frame")}``.
        The port may be left out where an operator has one. An operator without inputs, as in ``{("camera",
        "lamp")}``, runs after each compute of the first one, as by ``camera.then(lamp)`` in a fragment. `size` and
        `policy` are those of the queue at the input.
        """
        if isinstance(upstream_op, Fragment) or isinstance(downstream_op, Fragment):
            self._headrace.check_composing("add_flow()")
            connect_parts(self, upstream_op, downstream_op, port_pairs, size, policy, *more)
        else:
            super().add_flow(upstream_op, downstream_op, port_pairs, *more, size=size, policy=policy)

    def export_topic(self, topic: str, source: End | Fragment, port: str = "", **options: Any) -> None:
        """Publish what an output emits, as :meth:`Fragment.export_topic` does, or an output of a fragment.

        The port of a fragment names the operator, too: ``export_topic("plant/boxes", server, "detector.out")``.
        """
        if isinstance(source, Fragment):
            self._headrace.declare_in_part(
                source, f"export_topic({topic!r})", source.export_topic, topic, port, options
            )
        else:
            super().export_topic(topic, source, port, **options)

    def import_topic(self, topic: str, target: Ends | Fragment, port: str = "", **options: Any) -> None:
        """Receive a topic, as :meth:`Fragment.import_topic` does, or receive it in a fragment.

        The port of a fragment names the operator, too: ``import_topic("plant/boxes", screen, "viewer.receivers")``.
        """
        if isinstance(target, Fragment):
            self._headrace.declare_in_part(
                target, f"import_topic({topic!r})", target.import_topic, topic, port, options
            )
        else:
            super().import_topic(topic, target, port, **options)

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
        if reload or (config_file is not None and is_set("HEADRACE_RELOAD")):
            from headrace.application.reload import reload_on_hangup

            reload_on_hangup(self)
        if not argv:
            return super().config(config_file)
        # Keep the options: argv no longer has them when config is called again.
        self._headrace.options += take_options(self.argv)
        self._headrace.config = Config(config_file, self._headrace.options)
        return self._headrace.config
