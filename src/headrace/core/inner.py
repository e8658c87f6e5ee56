"""Inner: all that headrace keeps in an object of a program, behind one name.

A program derives from Operator, Fragment, Condition and others, and its classes may use every name that is not
documented. So these bases have documented names alone, and one more: ``_headrace`` is an object of the base's inner
class, which has the state and the methods that a run needs. ``operator._headrace`` is that object, and
``Camera._headrace`` is its class. Whoever derives the inner class can change what it does (`headrace.vocabulary`).

Decided against: private names in the bases, which any class of a program may use for something else, and a look at
the code of such a class, which does not see ``setattr`` or a mixin's method that is added later.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

T = TypeVar("T", covariant=True)


class Inner(Generic[T]):
    """The attribute ``_headrace`` of a base class: its inner class, and in an object an instance of that.

    The instance is made with the object as its argument, when it is first asked for: also for an object whose
    ``__init__`` has not called that of its base yet. From then on it is a plain attribute of the object.
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind

    @overload
    def __get__(self, owner: None, kind: type) -> type[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        """Return the inner class, or the inner object of `owner`."""
        if owner is None:
            return self._kind
        make: Any = self._kind
        # Not by setattr, which a program may have overridden.
        made = owner.__dict__["_headrace"] = make(owner)
        return made
