"""Wiring: `a >> b`, and `a["out"]` for a port.

Both are short forms of :meth:`Fragment.add_flow`, which takes the same things: operators, subgraphs, their ports,
and tuples of them. ``a >> b`` returns `b`, so that a chain can be written in one line. A port is a name with its
owner. Whether it is an input or an output follows from the side of the flow that it is on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar, overload

from headrace.core.construction import Inner
from headrace.core.errors import GraphError, PortError, absent
from headrace.core.ports import INPUT_EXEC, OUTPUT_EXEC


class _Linked:
    """What a flow begins with."""

    __slots__ = ()

    @overload
    def __rshift__(self, other: C) -> C: ...
    @overload
    def __rshift__(self, other: Port) -> Connectable: ...
    @overload
    def __rshift__(self, other: tuple[End, ...]) -> tuple[Connectable, ...]: ...
    def __rshift__(self, other: Any) -> Any:
        """Connect this to `other`, and return the operator that it leads to; a tuple is several."""
        return _connect(self, other)

    @overload
    def then(self, other: C) -> C: ...
    @overload
    def then(self, other: Port) -> Connectable: ...
    @overload
    def then(self, other: tuple[End, ...]) -> tuple[Connectable, ...]: ...
    def then(self, other: Any) -> Any:
        """Run `other` after each compute of this operator, and return `other`; a tuple is several.

        No data passes between them. An operator that comes after several others waits for all of them; one to which
        a loop leads back runs after each of them.
        """
        return _order(self, other)


class InnerConnectable:
    """The state that operators and subgraphs have in common."""

    noun: ClassVar[str] = "operator"
    """What it is, in errors."""
    is_subgraph: ClassVar[bool] = False
    node: Any = None
    """Its node, if it is an operator of a run."""

    def __init__(self, owner: Any) -> None:
        # The fragment or the subgraph that created it, in whose compose it is connected.
        self.place: Any = None
        # The object whose attributes are the values of its parameters; itself unless it is another.
        self.holder: Any = None

    @property
    def spec(self) -> Any:
        """Its parameters and ports."""
        raise NotImplementedError

    @property
    def never_emits(self) -> bool:
        """Whether it certainly never emits."""
        return False

    def check_attributes(self) -> None:
        """Raise if the program has put something of its own where a run needs something else."""


class Connectable(_Linked):
    """The base of what a flow connects: operators and subgraphs."""

    name: str
    fragment: Any
    spec: Any
    _headrace = Inner(InnerConnectable)

    is_function: ClassVar[bool] = False
    """Whether `@op` created it from a function."""
    is_subgraph: ClassVar[bool] = False
    """Whether it is a subgraph."""

    def __getitem__(self, port: str) -> Port:
        """Return a port, for a flow: ``camera["left"] >> detector["frame"]``."""
        if not isinstance(port, str):
            raise TypeError(
                f"the port of {self._headrace.noun} {self.name!r} is named by a str, not {port!r}"
            )
        spec = self._headrace.spec
        known = {**spec.every_input, **spec.every_output}
        if port not in known and port in (INPUT_EXEC, OUTPUT_EXEC) and not self._headrace.is_subgraph:
            if self._headrace.node is not None:
                raise GraphError(
                    f"operator {self.name!r} runs already, and its computes were not ordered when it began; say "
                    "then(...) in compose()"
                )
            spec.add_execution_port(port)
        elif port not in known:
            raise PortError(absent(f"{self._headrace.noun} {self.name!r}", "port", port, known))
        return Port(self, port)

    __iter__ = None  # or Python would take numbers for ports

    def __rrshift__(self: C, other: tuple[End, ...]) -> C:
        """Connect several to this, and return it."""
        _connect(other, self)
        return self


@dataclass(frozen=True, slots=True)
class Port(_Linked):
    """A port of an operator or a subgraph, as a flow names it."""

    owner: Any
    name: str

    def __rrshift__(self, other: tuple[End, ...]) -> Connectable:
        """Connect several to this input, and return its operator."""
        owner: Connectable = _connect(other, self)
        return owner

    def __str__(self) -> str:
        return f"{self.owner.name}.{self.name}"


C = TypeVar("C", bound=Connectable)
End: TypeAlias = Connectable | Port
"""One end of a flow: an operator or a subgraph, or a port of one."""
Ends: TypeAlias = End | tuple[End, ...]
"""The ends that a flow leads to or comes from."""


def are_ends(given: object) -> bool:
    """Return whether something is an end of a flow, or a tuple of ends."""
    if isinstance(given, tuple):
        return bool(given) and all(isinstance(each, (Connectable, Port)) for each in given)
    return isinstance(given, (Connectable, Port))


def ends_of(given: Any) -> tuple[Any, ...]:
    """Return one end or several as a tuple."""
    if given == ():
        raise GraphError("a flow leads from or to an operator or several of them, not to an empty tuple")
    return given if isinstance(given, tuple) else (given,)


def owner_of(end: Any) -> Any:
    """Return the operator or the subgraph at one end of a flow."""
    return end.owner if isinstance(end, Port) else end


def name_of(ends: Any) -> str:
    """Return the ends of a flow as an error shows them."""
    if isinstance(ends, tuple):
        return f"({', '.join(map(name_of, ends))})"
    if isinstance(ends, Port):
        return f"{ends.owner.name!r}[{ends.name!r}]"
    return repr(getattr(ends, "name", ends))


def _order(source: Any, target: Any) -> Any:
    """Connect the ports at which computes are ordered."""
    ends = tuple(_execution_end(end, INPUT_EXEC) for end in ends_of(target))
    _connect(_execution_end(source, OUTPUT_EXEC), ends)
    owners = tuple(map(owner_of, ends))
    return owners if isinstance(target, tuple) else owners[0]


def _execution_end(end: Any, port: str) -> Any:
    # A port of a subgraph leads to that of an operator; a subgraph may have only one.
    is_operator = isinstance(end, Connectable) and not end._headrace.is_subgraph and hasattr(end, "spec")
    return end[port] if is_operator else end


def _connect(source: Any, target: Any) -> Any:
    places = (owner_of(end)._headrace.place for end in (*ends_of(source), *ends_of(target)))
    place = next((found for found in places if found is not None), None)
    if place is None:  # a subclass whose __init__ does not call that of Operator
        kind = type(owner_of(ends_of(source)[0])).__name__
        raise GraphError(f"{kind}.__init__ must call super().__init__(fragment, ...)")
    place.add_flow(source, target)
    owners = tuple(map(owner_of, ends_of(target)))
    return owners if isinstance(target, tuple) else owners[0]
