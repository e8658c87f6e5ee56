"""The standard's extension for linear algebra. A factorization that fails gives NaN, as CuPy's does by default."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.gpu.sim.arrays.compute import as_dtype, compute, named
from headrace.gpu.sim.arrays.kernels import matmul as matmul
from headrace.gpu.sim.arrays.shapes import _view
from headrace.gpu.sim.arrays.shapes import matrix_transpose as matrix_transpose


def _factor(function: Any, *args: Any, **options: Any) -> Any:
    """Queue a function of matrices, of a few operations for each element and row."""
    x = args[0]._view
    rows = min(x.shape[-2:]) if x.ndim > 1 else 1
    return compute(function, *args, like="eye", operations=4.0 * x.size * rows, **options)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the products of vectors; those of the first array are conjugated."""
    return compute(np.vecdot, x1, x2, axis=axis)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Return the products of tensors over some axes."""
    axes = axes if isinstance(axes, int) else tuple(map(tuple, axes))
    return compute(np.tensordot, x1, x2, axes=axes, operations=2.0 * x1.size * max(x2.size, 1) ** 0.5)


def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of all pairs of elements of two vectors."""
    return compute(np.linalg.outer, x1, x2)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the cross products of vectors of three elements."""
    return compute(np.linalg.cross, x1, x2, axis=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return a view of the diagonals of matrices."""
    return _view(np.linalg.diagonal, x, offset=offset)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sums of diagonals."""
    return compute(np.linalg.trace, x, offset=offset, dtype=as_dtype(dtype))


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return norms of matrices."""
    return _factor(np.linalg.matrix_norm, x, keepdims=keepdims, ord=ord)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Any:
    """Return norms of vectors."""
    return compute(np.linalg.vector_norm, x, axis=axis, keepdims=keepdims, ord=ord)


def norm(x: Any, /, ord: Any = None, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return norms of vectors or matrices, as NumPy's function of this name."""
    return _factor(np.linalg.norm, x, ord=ord, axis=axis, keepdims=keepdims)


def matrix_power(x: Any, n: int, /) -> Any:
    """Return powers of matrices."""
    return _factor(np.linalg.matrix_power, x, n)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """Return ranks of matrices."""
    return _factor(np.linalg.matrix_rank, x, rtol=rtol)


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """Return the Cholesky factors of matrices."""
    return _factor(np.linalg.cholesky, x, upper=upper)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """Return pseudo-inverses of matrices."""
    return _factor(np.linalg.pinv, x, rtol=rtol)


def qr(x: Any, /, *, mode: str = "reduced") -> Any:
    """Return the factors Q and R of matrices."""
    return _factor(np.linalg.qr, x, mode=mode)


def solve(x1: Any, x2: Any, /) -> Any:
    """Return the solutions of systems of linear equations."""
    return _factor(np.linalg.solve, x1, x2)


def svd(x: Any, /, *, full_matrices: bool = True) -> Any:
    """Return the singular value decompositions of matrices."""
    return _factor(np.linalg.svd, x, full_matrices=full_matrices)


def _of_matrices(function: Any) -> Any:
    def factor(x: Any, /) -> Any:
        return _factor(function, x)

    return named(factor, function.__name__)


det, inv, slogdet = _of_matrices(np.linalg.det), _of_matrices(np.linalg.inv), _of_matrices(np.linalg.slogdet)
eigh, eigvalsh = _of_matrices(np.linalg.eigh), _of_matrices(np.linalg.eigvalsh)
svdvals = _of_matrices(np.linalg.svdvals)
