"""Hidden: names of headrace's classes that the SDK's classes do not have, and that a program may use."""

from __future__ import annotations

from typing import Any, NoReturn


class Hidden:
    """Stands for a property of the base, as if there were none: a program may assign the name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self._name!r}")
