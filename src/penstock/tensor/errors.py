"""The error of this layer, and how it names what it speaks of."""


class TensorError(TypeError):
    """Something cannot be a tensor; the text says what it is, what was tried, and what would do."""


def type_name(obj: object) -> str:
    """Return the full name of an object's type, as errors and reprs have it."""
    kind = type(obj)
    return f"{kind.__module__}.{kind.__qualname__}"


def text_of(error: Exception) -> str:
    """Return what an error says, or its type where it says nothing."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # it cannot even say that
        return type(error).__name__
