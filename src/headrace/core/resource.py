"""Resource: an object that operators share and that outlives one `compute`, such as a clock or a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from headrace.core.construction import check_name, constructor, refuse_keywords

if TYPE_CHECKING:
    from headrace.core.composition import Composition

S = TypeVar("S")


class Component:
    """The base of conditions and resources."""

    fragment: Composition | None
    name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = constructor(cls.__init__)  # type: ignore[method-assign]

    @constructor
    def __init__(
        self, fragment: Composition | None = None, *args: Any, name: str = "", **kwargs: Any
    ) -> None:
        if kwargs:
            refuse_keywords(type(self), list(kwargs))
        if args:
            raise TypeError(f"{type(self).__name__} does not take {', '.join(map(repr, args))}")
        check_name(type(self), name)
        self.fragment = None if fragment is None else fragment._root
        self.name = name or type(self).__name__.lower()

    def service(self, service_type: type[S], id: str = "") -> S | None:  # noqa: A002 (the SDK's name)
        """Return a service of the fragment that this belongs to, or None (:meth:`Composition.service`)."""
        return None if self.fragment is None else self.fragment.service(service_type, id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Resource(Component):
    """The base of resources; subclass it to write your own.

    Parameters
    ----------
    fragment
        The fragment that the resource belongs to.
    name
        The name to find it by; the class's name in lower case unless given.
    """

    @staticmethod
    def check_graph(fragment: Composition) -> None:
        """Raise if a graph uses resources of this class incorrectly.

        A subclass may override it. It is called once for each class, when the graph has been composed.
        """

    def initialize(self) -> None:
        """Prepare for a run; called once per run, before the first operator is initialized."""

    def release(self) -> None:
        """Release what the run used; called once per run, after the last operator has stopped."""
