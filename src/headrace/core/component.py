"""Component: what conditions and resources have in common, a name and the fragment that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.construction import check_name, constructor

if TYPE_CHECKING:
    from headrace.core.composition import Composition

__all__ = ["Component"]


class Component:
    """The base of conditions and resources."""

    fragment: Composition | None
    name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = constructor(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, fragment: Composition | None = None, *args: Any, name: str = "") -> None:
        if args:
            raise TypeError(f"{type(self).__name__} does not take {', '.join(map(repr, args))}")
        check_name(type(self), name)
        self.fragment = fragment
        self.name = name or type(self).__name__.lower()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
