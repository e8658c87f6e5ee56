"""Resource: something operators share that outlives one `compute`, such as a clock or a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment

__all__ = ["Resource"]


class Resource:
    """The base of resources; subclass it to write one.

    Parameters
    ----------
    fragment
        The fragment the resource belongs to.
    name
        A name to find it by; the class's own name in lower case unless given.
    """

    def __init__(self, fragment: Fragment | None = None, *args: Any, name: str = "", **kwargs: Any) -> None:
        if args or kwargs:
            unknown = [*map(repr, args), *kwargs]
            raise TypeError(f"{type(self).__name__} does not take {', '.join(unknown)}")
        self.fragment = fragment
        self.name = name or type(self).__name__.lower()

    @staticmethod
    def check_graph(fragment: Fragment) -> None:
        """Raise for what can be known to be wrong with how a graph uses resources of this kind.

        Called once for each kind, when the graph has been composed; a subclass may write it.
        """

    def initialize(self) -> None:
        """Get ready; called once per run, before the first operator is initialized."""

    def release(self) -> None:
        """Give back what the run used; called once per run, after the last operator has stopped."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
