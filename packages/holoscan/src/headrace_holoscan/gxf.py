"""holoscan.gxf: messages of tensors, and the classes under the SDK's own."""

# ruff: noqa: F401

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.tensor import TensorMap
from headrace_holoscan.absent import absent
from headrace_holoscan.core.components import (
    GXFComponent,
    GXFCondition,
    GXFNetworkContext,
    GXFResource,
    GXFSystemResourceBase,
)
from headrace_holoscan.lenience import tell
from headrace_holoscan.schedulers import GXFScheduler


class _AnyEntity(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TensorMap)


class Entity(metaclass=_AnyEntity):
    """A message of tensors: ``Entity(context)`` is a TensorMap, which has `add` and `get`."""

    def __new__(cls, context: Any) -> Any:
        """Return an empty map."""
        return TensorMap()


def load_extensions(
    context: int, extension_filenames: Sequence[str] = (), manifest_filenames: Sequence[str] = ()
) -> None:
    """Load nothing: there are no compiled extensions here."""
    files = ", ".join(map(repr, (*extension_filenames, *manifest_filenames))) or "none"
    tell(f"GXF extensions are not loaded ({files})", "headrace has no compiled extensions")


_CONTEXT = "a run makes the contexts; compute is given them"
GXFExecutionContext = absent("GXFExecutionContext", _CONTEXT)
GXFInputContext = absent("GXFInputContext", _CONTEXT)
GXFOutputContext = absent("GXFOutputContext", _CONTEXT)
GXFOperator = absent("GXFOperator", "it wraps a compiled GXF codelet; derive from holoscan.core.Operator")

__all__ = [name for name in dir() if name.startswith("GXF") or name in ("Entity", "load_extensions")]
