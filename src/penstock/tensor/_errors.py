"""The error of this layer."""


class TensorError(TypeError):
    """Something cannot be a tensor; the text says what it is, what was tried, and what would do."""
