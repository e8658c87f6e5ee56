"""Reserved names: attributes that a parameter must not overwrite.

A parameter that `setup` declares becomes an attribute of its operator or condition. With the name of an attribute
that exists already, it would replace it: a parameter named ``stop`` would replace the method. So such a name is
refused where it is declared. The parameters of a function (`@op`) may have any name: if it is taken, the operator
keeps the value elsewhere.
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType

from headrace.core.errors import ParameterError, choices


def check_parameter_name(name: str, kind: type, base: type) -> None:
    """Raise ParameterError if a parameter of a class, which derives from `base`, would replace something else."""
    if name in reserved_names(base):
        public = sorted(taken for taken in reserved_names(base) if not taken.startswith("_"))
        raise ParameterError(
            f"{kind.__name__} cannot have a parameter {name!r}: every {base.__name__.lower()} has an attribute of "
            f"that name, which the parameter would replace. Give the parameter another name; "
            f"these are taken: {choices(public)}"
        )
    known = inspect.getattr_static(kind, name, None)
    if isinstance(known, property):
        if known.fset is None:
            raise ParameterError(
                f"{kind.__name__} cannot have a parameter {name!r}: it has a property of that name without a "
                "setter; give the property a setter, or one of them another name"
            )
    elif isinstance(known, (FunctionType, classmethod, staticmethod)):
        raise ParameterError(
            f"{kind.__name__} cannot have a parameter {name!r}: it has a method of that name, which the parameter "
            "would replace; give one of them another name"
        )


# A program may give an operator a logger of its own.
_REPLACEABLE = {"logger"}


@functools.cache
def reserved_names(base: type) -> frozenset[str]:
    """Return the names of the attributes of a base class and of its instances, which the class annotates."""
    annotated = {name for kind in base.__mro__ for name in inspect.get_annotations(kind)}
    return frozenset({*dir(base), *annotated} - _REPLACEABLE)
