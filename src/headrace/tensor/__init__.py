"""Tensors: arrays from any library, in a form that every other library accepts without a copy.

:func:`as_tensor` describes an array as a :class:`Tensor`, which supports DLPack and both array interfaces. The
package does not depend on pipelines and is also useful in a plain script.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
