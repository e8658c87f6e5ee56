"""The name of a composition in annotations of the layers below `headrace.application`."""

from __future__ import annotations

from headrace.core.composition import Composition as Fragment

__all__ = ["Fragment"]
