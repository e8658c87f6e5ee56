"""Subgraph: a group of operators with ports and parameters of its own, to be used several times.

It is declared as an application is, by `compose`, and used as an operator is. There is nothing of it in a run: its
operators are operators of the fragment with names such as ``left.camera``, and a flow to one of its ports is a flow
to the operator behind that port. So whatever works for operators works for those in a subgraph: conditions,
captured segments, recordings, goals.

`compose` is called where the subgraph is created, so that its ports are known when it is connected.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.core.composition import Composition, InnerComposition
from headrace.core.construction import Arg, ArgList, Inner, named_values, needs_fragment, snake_case
from headrace.core.errors import GraphError, ParameterError, absent, choices, noting
from headrace.core.parameters import check_parameter_name, set_up
from headrace.core.spec import ComponentSpec
from headrace.core.wiring import Connectable, InnerConnectable, Port, name_of, owner_of

if TYPE_CHECKING:
    from dataclasses import InitVar

    from headrace.core.graph import Graph
    from headrace.core.parameters import argument, declared, required
    from headrace.core.wiring import End


class SubgraphSpec(ComponentSpec):
    """The parameters of a subgraph, and the ports of its operators that are behind each port of its own."""

    def __init__(self, fragment: Composition, subgraph: Subgraph) -> None:
        super().__init__(fragment, partial(check_parameter_name, kind=type(subgraph), base=Subgraph))
        self.inputs: dict[str, tuple[Port, ...]] = {}
        self.outputs: dict[str, tuple[Port, ...]] = {}
        # A port of a subgraph that leads to an execution flow is one of its ports, under a name of its own.
        self.every_input, self.every_output = self.inputs, self.outputs


class InnerSubgraph(InnerConnectable, InnerComposition):
    """The state of a subgraph."""

    of_the_fragment: ClassVar[set[str]] = {
        *("count_messages", "max_in_flight", "metadata_policy", "stream_per", "is_metadata_enabled"),
    }
    """The settings that only the whole fragment has."""
    noun = "subgraph"
    is_subgraph = True
    separator: ClassVar[str] = "."
    """What is between its name and the name that an operator has in it."""

    def __init__(self, subgraph: Subgraph) -> None:
        super().__init__(subgraph)
        self.subgraph = self.composition = subgraph
        self.local_name = ""
        self.config = None
        self.names = {}
        self.declared: Any = None

    @property
    def spec(self) -> Any:
        """Its parameters and ports."""
        return self.declared

    def set_up(self) -> None:
        """Let the program declare parameters."""
        self.subgraph.spec = self.spec
        set_up(self.subgraph, self.spec)

    def take_parameters(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> list[str]:
        """Set the parameters, and return the names of the sections among the named values."""
        what = f"subgraph {self.subgraph.name!r} ({type(self.subgraph).__name__})"
        if not all(isinstance(arg, (Arg, ArgList)) for arg in args):
            raise ParameterError(
                f"{what} takes named values, such as from_config('section'), as positional arguments, not "
                f"{', '.join(map(repr, args))}; name=... and parameters ({choices(self.spec.params)}) "
                "are keywords"
            )
        named = {arg.name: arg.value for arg in named_values(args)}
        sections = [
            name for name, value in named.items() if isinstance(value, dict) and name not in self.spec.params
        ]
        values = {name: value for name, value in named.items() if name not in sections} | keywords
        # What users set wins over what the program gives.
        settings = self.subgraph.fragment._headrace.set_parameters(self.subgraph, "subgraph")
        self.spec.apply(self.subgraph, values | settings)
        missing = self.spec.missing(self.subgraph)
        if missing:
            raise ParameterError(
                f"{what} needs a value for {choices(missing)}; pass it as a keyword argument"
            )
        return sections

    def check_sections(self, sections: list[str]) -> None:
        """Raise if a section is neither a parameter nor an operator."""
        graph, prefix = self.subgraph.fragment.graph, self.prefix
        made = [
            operator.name
            for operator in self.subgraph.fragment._headrace.made or ()
            if operator.name.startswith(prefix)
        ]
        inside = dict.fromkeys(
            name.removeprefix(prefix).partition(self.separator)[0]
            for name in (*made, *graph.subgraphs)
            if name.startswith(prefix)
        )
        for name in sections:
            if name not in inside:
                known = [*self.spec.params, *inside]
                raise ParameterError(
                    absent(f"subgraph {self.subgraph.name!r}", "parameter or operator", name, known)
                )

    def declare(
        self, known: dict[str, tuple[Port, ...]], kind: str, name: str, ports: tuple[Any, ...]
    ) -> None:
        """Declare a port of the subgraph."""
        where = f"subgraph {self.subgraph.name!r}: add_{kind}({name!r}, {', '.join(map(name_of, ports))})"
        if not isinstance(name, str) or not name:
            raise GraphError(f"{where}: the name of a port must be a non-empty str")
        if name in known:
            raise GraphError(f"{where}: the subgraph has the {kind} {name!r} already")
        if not ports:
            raise GraphError(f"{where}: give the {kind} of an operator inside, as in operator[{name!r}]")
        for port in ports:
            self.check_place(port)
        known[name] = tuple(
            found
            for port in ports
            for found in self.subgraph.fragment.graph.ports_at(
                port, kind, "", f"{where}", f"operator[{name!r}]"
            )
        )
        for port in known[name]:
            self.subgraph.fragment.graph.add(owner_of(port))

    @property
    def root(self) -> Composition:
        """The fragment; another one than this object if this is a subgraph."""
        return self.subgraph.fragment

    @property
    def prefix(self) -> str:
        """What the names of its operators begin with."""
        return f"{self.subgraph.name}{self.separator}"

    def qualified(self, name: str) -> str:
        """Return the name that an operator of this name has in the whole fragment."""
        return f"{self.prefix}{name}"

    def changes_of_run(self, call: str) -> None:
        """Return None: a subgraph is composed, and does not change in a run."""
        whole = self.subgraph.fragment
        if whole._headrace.made is None and whole._headrace.engine is not None:
            raise GraphError(
                f"{call} in subgraph {self.subgraph.name!r}, which does not change in a run: create the operator "
                f"in {whole.name!r}, and connect it to a port of the subgraph: subgraph['port'] >> operator"
            )
        self.check_composing(call)

    def check_composing(self, call: str) -> None:
        """Raise if compose is not running: every run composes its graph anew, and does not change it then."""
        self.subgraph.fragment._headrace.check_composing(call)


if TYPE_CHECKING:

    @declared
    class _Arguments(Connectable):
        """The arguments that every subgraph takes, for the constructors of classes with `declared`."""

        fragment: Composition = required(kw_only=False)
        _1: InitVar[Arg | list[Arg]] = argument(kw_only=False, default=...)
        _2: InitVar[Arg | list[Arg]] = argument(kw_only=False, default=...)
        name: str = argument(default="")

else:
    _Arguments = Connectable


class Subgraph(_Arguments, Composition):
    """A group of operators that is connected as one; subclass it and write `compose`.

    ::

        @declared
        class Eye(Subgraph):
            exposure: float = 0.01

            def compose(self):
                camera = CameraOp(self, exposure=self.exposure, name="camera")
                detector = DetectorOp(self, name="detector")
                camera >> detector
                self.add_output("boxes", detector["boxes"])

    In an application, ``Eye(self, name="left")["boxes"]`` is the output of the operator ``left.detector``.

    Parameters
    ----------
    fragment
        The application, fragment or subgraph that it is a part of.
    *args
        Named values (an :class:`Arg` or what ``from_config`` returns). A section of the configuration may contain
        the sections of the operators inside: these are left to ``from_config`` in `compose`.
    name
        Its name; the names of its operators begin with it. By default the class's name, made unique.
    **kwargs
        The parameters.
    """

    fragment: Composition
    """The fragment that its operators belong to."""
    spec: SubgraphSpec
    """Its parameters and ports."""
    is_subgraph = True
    _headrace = Inner(InnerSubgraph)

    @needs_fragment
    def __init__(self, fragment: Composition, *args: Arg | list[Arg], name: str = "", **kwargs: Any) -> None:
        kind = type(self).__name__
        if not isinstance(name, str) or "." in name:
            raise TypeError(f"the name of a {kind} must be a str without a '.', not {name!r}")
        self.fragment = fragment._headrace.root
        self._headrace.place = fragment
        self._headrace.local_name = name or fragment._headrace.unused_name(snake_case(kind))
        self.name = fragment._headrace.qualified(self._headrace.local_name)
        self.fragment._headrace.check_composing(f"{kind}({self.name!r})")
        self._headrace.declared = SubgraphSpec(self.fragment, self)
        with noting(f"raised in setup of subgraph {self.name!r} ({kind})"):
            self._headrace.set_up()
        sections = self._headrace.take_parameters(args, kwargs)
        self.fragment.graph.add_subgraph(self)
        with noting(f"raised in compose of subgraph {self.name!r} ({kind})"):
            self.compose()
        self._headrace.check_sections(sections)

    # Methods that a subclass overrides.

    def setup(self, spec: SubgraphSpec) -> None:
        """Declare parameters by ``spec.param``, for a class without `declared`."""

    # Methods that compose calls.

    def add_input(self, name: str, *ports: End) -> None:
        """Declare an input of the subgraph.

        Parameters
        ----------
        name
            The name that flows use.
        *ports
            The inputs that its messages go to: ``operator["port"]``, or the operator if it has one required input.
            Each of several receives every message.
        """
        self._headrace.declare(self._headrace.spec.inputs, "input", name, ports)

    def add_output(self, name: str, port: End) -> None:
        """Declare an output of the subgraph: that of an operator, ``operator["port"]`` or its only one."""
        self._headrace.declare(self._headrace.spec.outputs, "output", name, (port,))

    # The configuration: its section has its name.

    def from_config(self, key: str) -> Any:
        """Return a section under the subgraph's own: in the subgraph ``left``, "camera" is ``left.camera``.

        A subgraph that reads a file of its own, by `config`, has the sections of that file.
        """
        return (
            super().from_config(key)
            if self._headrace.config
            else self._headrace.place.from_config(f"{self._headrace.local_name}.{key}")
        )

    def kwargs(self, key: str) -> dict[str, Any]:
        """Return a section under the subgraph's own as keyword arguments."""
        return (
            super().kwargs(key)
            if self._headrace.config
            else self._headrace.place.kwargs(f"{self._headrace.local_name}.{key}")
        )

    def config_keys(self) -> set[str]:
        """Return every key under the subgraph's own section."""
        if self._headrace.config:
            return super().config_keys()
        prefix = f"{self._headrace.local_name}."
        return {
            key.removeprefix(prefix) for key in self._headrace.place.config_keys() if key.startswith(prefix)
        }

    # The parts of a composition that it has.

    @property
    def graph(self) -> Graph:
        """The graph of the fragment."""
        return self.fragment.graph

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._headrace.of_the_fragment:
            raise AttributeError(
                f"subgraph {self.name!r}: {name!r} is a setting of the whole fragment; set it in the "
                "application, or for each operator"
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        fragment = self.__dict__.get("fragment")
        hint = f"; its fragment has one: self.fragment.{name}" if hasattr(fragment, name) else ""
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{hint}")
