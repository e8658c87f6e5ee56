"""TensorFlow: tensors are immutable, and DLPack exports only complete data."""

from __future__ import annotations

from headrace.tensor.libraries.library import Library


class TensorFlow(Library):
    """TensorFlow's tensors."""

    name = "TensorFlow"
    types = ("tensorflow",)
    takes_stream = False
    is_immutable = True


LIBRARY = TensorFlow()
