"""TensorSpec: what a model expects of one of its inputs, or promises of one of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Extent: TypeAlias = int | str | None
"""One entry of a shape: a number, the name of a dynamic extent, or None for one without a name."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model.

    Attributes
    ----------
    name
        Its name in the model.
    dtype
        NumPy's dtype of the elements; None where the model does not say.
    shape
        The extents: numbers, and names (or None) of those that may differ from run to run. None where the model
        does not say.
    """

    name: str
    dtype: np.dtype[Any] | None = None
    shape: tuple[Extent, ...] | None = None

    def __str__(self) -> str:
        kind = "any type" if self.dtype is None else self.dtype.name
        return f"{kind} {shape_text(self.shape)}"

    @property
    def is_dynamic(self) -> bool:
        """Whether an extent may differ from run to run."""
        return self.shape is None or any(not isinstance(extent, int) for extent in self.shape)

    def arrange(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the shape in which a tensor fits, or None if it does not fit.

        Axes of extent 1 may be missing or too many: they do not change where the elements are. If an extent is
        dynamic, only axes at the front may.
        """
        wanted = self.shape
        if wanted is None or _matches(wanted, shape):
            return shape
        missing = len(wanted) - len(shape)
        if missing > 0 and _matches(wanted, (1,) * missing + shape):
            return (1,) * missing + shape
        if missing < 0 and all(extent == 1 for extent in shape[:-missing]):
            rest = shape[-missing:]
            if _matches(wanted, rest):
                return rest
        fixed = tuple(extent for extent in wanted if isinstance(extent, int))
        if len(fixed) == len(wanted) and _without_ones(fixed) == _without_ones(shape):
            return fixed
        return None


def resolve(
    inputs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]], outputs: Sequence[TensorSpec]
) -> list[tuple[int, ...] | None]:
    """Return the shape of each output for given shapes of the inputs, None where the specs do not tell it.

    A dynamic extent of an output is known if an input has one of the same name.
    """
    named: dict[str, int | None] = {}
    for spec, shape in zip(inputs, shapes, strict=True):
        for extent, found in zip(spec.shape or (), shape, strict=False):
            if isinstance(extent, str):
                # A name with two values tells nothing.
                named[extent] = found if named.get(extent, found) == found else None
    return [_resolved(spec.shape, named) for spec in outputs]


def shape_text(shape: tuple[Extent, ...] | None) -> str:
    """Return a shape as an error shows it, with a question mark for an extent without a name."""
    if shape is None:
        return "of any shape"
    inside = ", ".join("?" if extent is None else str(extent) for extent in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


def _resolved(shape: tuple[Extent, ...] | None, named: dict[str, int | None]) -> tuple[int, ...] | None:
    if shape is None:
        return None
    found = [
        extent if isinstance(extent, int) else named.get(extent) if isinstance(extent, str) else None
        for extent in shape
    ]
    known = tuple(extent for extent in found if extent is not None)
    return known if len(known) == len(found) else None


def _matches(wanted: tuple[Extent, ...], shape: tuple[int, ...]) -> bool:
    return len(wanted) == len(shape) and all(
        not isinstance(extent, int) or extent == found for extent, found in zip(wanted, shape, strict=True)
    )


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(extent for extent in shape if extent != 1)
