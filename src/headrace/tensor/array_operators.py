"""ArrayOperators: tensors in expressions. A library computes them, on the memory of the tensor.

The library is that of the other operand, if that is an array. Otherwise it is NumPy for memory that the host can
read, CuPy or, where that is not installed, PyTorch for memory of a GPU, and `headrace.gpu.arrays` for memory of a
simulated device. The result is an array of the library: from then on a program has all functions of the library,
and not only those that a tensor would repeat. Results that are tensors were decided against for that reason.

The libraries of devices compute on their current stream, which is ordered after the work on the tensor. The host
computes when the work is done, and waits for it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace import gpu
from headrace.gpu.backend import active
from headrace.gpu.stream_handle import LEGACY_DEFAULT_HANDLE
from headrace.tensor.description import stream_of
from headrace.tensor.libraries import Library, computing_library, library_of

if TYPE_CHECKING:
    from headrace.tensor.tensor import Tensor

_Value = TypeVar("_Value")


def _unary(operation: Callable[[Any], _Value]) -> Callable[[Any], _Value]:
    def compute(self: Any) -> _Value:
        return operation(as_array(self))

    return compute


_Operation = Callable[[Any, Any], Any]


def _operators(operation: _Operation, in_place: _Operation) -> tuple[_Operation, _Operation, _Operation]:
    """Return an operator of two operands, the reflected one, and the one in place."""

    def forward(self: Any, other: Any) -> Any:
        return operation(*_operands(self, other))

    def reflected(self: Any, other: Any) -> Any:
        array, other = _operands(self, other)
        return operation(other, array)

    def assign(self: Any, other: Any) -> Any:
        _check_writable(self)
        array, other = _operands(self, other, in_place=True)
        result = in_place(array, other)
        if result is not array:  # the other's library computed it, which has no operators in place, as JAX
            array[...] = result
        return self

    return forward, reflected, assign


class ArrayOperators:
    """The operators of an array, for a tensor."""

    __slots__ = ()

    # NumPy and CuPy leave `array + tensor` to an operand of a higher priority than their own.
    __array_priority__ = 1000

    __neg__ = _unary(operator.neg)
    __pos__ = _unary(operator.pos)
    __abs__ = _unary(operator.abs)
    __invert__ = _unary(operator.invert)

    __add__, __radd__, __iadd__ = _operators(operator.add, operator.iadd)
    __sub__, __rsub__, __isub__ = _operators(operator.sub, operator.isub)
    __mul__, __rmul__, __imul__ = _operators(operator.mul, operator.imul)
    __pow__, __rpow__, __ipow__ = _operators(operator.pow, operator.ipow)
    __mod__, __rmod__, __imod__ = _operators(operator.mod, operator.imod)
    __and__, __rand__, __iand__ = _operators(operator.and_, operator.iand)
    __or__, __ror__, __ior__ = _operators(operator.or_, operator.ior)
    __xor__, __rxor__, __ixor__ = _operators(operator.xor, operator.ixor)
    __truediv__, __rtruediv__, __itruediv__ = _operators(operator.truediv, operator.itruediv)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(operator.floordiv, operator.ifloordiv)
    __matmul__, __rmatmul__, __imatmul__ = _operators(operator.matmul, operator.imatmul)
    __lshift__, __rlshift__, __ilshift__ = _operators(operator.lshift, operator.ilshift)
    __rshift__, __rrshift__, __irshift__ = _operators(operator.rshift, operator.irshift)
    __divmod__, __rdivmod__, _ = _operators(divmod, divmod)

    __lt__, __gt__, __le__, __ge__, __eq__, __ne__ = (
        _operators(one, one)[0]
        for one in (operator.lt, operator.gt, operator.le, operator.ge, operator.eq, operator.ne)
    )
    # As PyTorch's tensors: a tensor is a key by its identity, although == compares elements.
    __hash__ = object.__hash__

    __bool__ = _unary(bool)
    __int__ = _unary(int)
    __float__ = _unary(float)
    __complex__ = _unary(complex)
    __index__ = _unary(operator.index)

    def __len__(self) -> int:
        shape = cast("Tensor", self).shape
        if not shape:
            raise TypeError(f"len() of a tensor without dimensions: {self!r}")
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(as_array(cast("Tensor", self)))

    def __contains__(self, value: Any) -> bool:
        array, value = _operands(cast("Tensor", self), value)
        return value in array

    def __getitem__(self, key: Any) -> Any:
        return as_array(cast("Tensor", self))[_plain(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        _check_writable(cast("Tensor", self))
        array, value = _operands(cast("Tensor", self), value, in_place=True)
        array[_plain(key)] = value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Compute one of NumPy's functions, which ``array + tensor`` is too."""
        out = options.pop("out", None)
        arrays = _plain(inputs)
        if out is None:
            return getattr(ufunc, method)(*arrays, **{name: _plain(one) for name, one in options.items()})
        for one in out:
            if isinstance(one, ArrayOperators):
                _check_writable(cast("Tensor", one))
        options["out"] = out
        results = getattr(ufunc, method)(*arrays, **{name: _plain(one) for name, one in options.items()})
        # What was passed for the results is returned, as NumPy does.
        return tuple(out) if isinstance(results, tuple) else out[0]


def as_array(tensor: Tensor) -> Any:
    """Return a tensor as an array of the library that computes on its memory, in order.

    Raises
    ------
    ImportError
        If no library is installed that computes on memory of the device.
    """
    device = tensor.device
    if device.is_host:
        if device.is_cuda:
            _wait_for(tensor)
        return _as_numpy(tensor)
    if active().runs_cuda:
        return computing_library().from_tensor(tensor)
    return library_of(active().array_module().ndarray).from_tensor(tensor)


def _as_numpy(tensor: Tensor) -> Any:
    import numpy as np

    return np.asarray(tensor)


def _wait_for(tensor: Tensor) -> None:
    """Wait for the work on a tensor, and for the current stream, which may have been ordered after it already."""
    stream = gpu.current_stream() or LEGACY_DEFAULT_HANDLE
    tensor._order(stream)
    stream_of(stream).sync()


def _operands(tensor: Tensor, other: Any, *, in_place: bool = False) -> tuple[Any, Any]:
    """Return a tensor and another operand as arrays of one library."""
    if isinstance(other, ArrayOperators):
        return as_array(tensor), as_array(cast("Tensor", other))
    library = library_of(type(other))
    is_theirs = type(library).from_tensor is not Library.from_tensor
    if (
        is_theirs
        and (active().runs_cuda or tensor.device.is_host or not library.works_on_cuda_streams)
        and not (in_place and library.is_immutable)
    ):
        return library.from_tensor(tensor), other
    return as_array(tensor), _plain(other)


def _plain(value: Any) -> Any:
    """Return a value with arrays in the place of tensors."""
    if isinstance(value, ArrayOperators):
        return as_array(cast("Tensor", value))
    if type(value) is tuple or type(value) is list:
        return type(value)([_plain(one) for one in value])
    return value


def _check_writable(tensor: Tensor) -> None:
    if tensor.is_readonly:
        raise ValueError(f"{tensor._error_prefix()}{tensor!r} is read-only; compute a new array instead")
