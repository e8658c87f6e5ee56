"""SO2 and SO3: rotations of the plane and of space.

A rotation is kept as a unit complex number or a unit quaternion (x, y, z, w), in Python's floats: NumPy's calls
cost more than the 16 multiplications of a product.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.vocabulary import brief

Floats: TypeAlias = tuple[float, ...]
_TINY = 1e-12


class SO2:
    """A rotation of the plane; `SO2()` is the identity."""

    __slots__ = ("_direction",)

    def __init__(self, cos: float = 1.0, sin: float = 0.0) -> None:
        self._direction: Floats = (float(cos), float(sin))

    @staticmethod
    def identity() -> SO2:
        """Return the rotation that changes nothing."""
        return SO2()

    @staticmethod
    def from_angle(angle: float) -> SO2:
        """Return the rotation by an angle, in radians."""
        return SO2(math.cos(angle), math.sin(angle))

    @staticmethod
    def from_direction(direction: ArrayLike) -> SO2:
        """Return the rotation that turns the x axis into a direction, of any length but 0."""
        return SO2(*unit(floats(direction, 2, "direction"), "direction"))

    @staticmethod
    def from_normalized(direction: ArrayLike) -> SO2:
        """Return the rotation that turns the x axis into a direction of length 1."""
        return SO2(*floats(direction, 2, "direction"))

    def cos(self) -> float:
        """Return the cosine of the angle."""
        return self._direction[0]

    def sin(self) -> float:
        """Return the sine of the angle."""
        return self._direction[1]

    def angle(self) -> float:
        """Return the angle, from -π to π."""
        return math.atan2(self._direction[1], self._direction[0])

    def inverse(self) -> SO2:
        """Return the rotation back."""
        return SO2(self.cos(), -self.sin())

    def matrix(self) -> NDArray[np.float64]:
        """Return the rotation as a matrix of 2 by 2."""
        cos, sin = self._direction
        return np.array([[cos, -sin], [sin, cos]])

    def __matmul__(self, other: object) -> SO2:
        if not isinstance(other, SO2):
            return NotImplemented
        (a, b), (c, d) = self._direction, other._direction
        return SO2(*unit((a * c - b * d, a * d + b * c), "rotation"))

    def __mul__(self, points: ArrayLike) -> NDArray[np.float64]:
        """Rotate a point, or an array of points."""
        return apply(self.matrix(), points)

    def __repr__(self) -> str:
        return f"SO2(angle={self.angle():g})"


class SO3:
    """A rotation of space; `SO3()` is the identity."""

    __slots__ = ("_quaternion",)

    def __init__(self) -> None:
        self._quaternion: Floats = (0.0, 0.0, 0.0, 1.0)

    @staticmethod
    def _of(quaternion: Floats) -> SO3:
        made = SO3()
        made._quaternion = quaternion
        return made

    @staticmethod
    def identity() -> SO3:
        """Return the rotation that changes nothing."""
        return SO3()

    @staticmethod
    def from_scaled_axis(axis: ArrayLike) -> SO3:
        """Return the rotation about an axis by an angle that is the length of the axis."""
        vector = floats(axis, 3, "axis")
        angle = math.hypot(*vector)
        return SO3() if angle < _TINY else SO3.from_axis_angle(vector, angle)

    @staticmethod
    def from_axis_angle(axis: ArrayLike, angle: float) -> SO3:
        """Return the rotation about an axis, of any length but 0, by an angle in radians."""
        x, y, z = unit(floats(axis, 3, "axis"), "axis")
        sin = math.sin(angle / 2)
        return SO3._of((x * sin, y * sin, z * sin, math.cos(angle / 2)))

    @staticmethod
    def from_quaternion(quaternion: ArrayLike) -> SO3:
        """Return the rotation of a quaternion (x, y, z, w) of any length but 0."""
        return SO3._of(unit(floats(quaternion, 4, "quaternion"), "quaternion"))

    @staticmethod
    def from_normalized_quaternion(quaternion: ArrayLike) -> SO3:
        """Return the rotation of a quaternion (x, y, z, w) of length 1."""
        return SO3._of(floats(quaternion, 4, "quaternion"))

    @staticmethod
    def from_so2_xy(rotation: SO2) -> SO3:
        """Return the rotation about the z axis that rotates the xy plane so."""
        return SO3.from_axis_angle((0.0, 0.0, 1.0), rotation.angle())

    @staticmethod
    def from_matrix(matrix: ArrayLike) -> SO3:
        """Return the rotation of a matrix of 3 by 3, which has to be orthonormal."""
        rows = square(matrix, 3).tolist()
        (a, b, c), (d, e, f), (g, h, i) = rows
        if a + e + i > 0:
            found = (h - f, c - g, d - b, 1 + a + e + i)
        elif a >= e and a >= i:
            found = (1 + a - e - i, b + d, c + g, h - f)
        elif e >= i:
            found = (b + d, 1 - a + e - i, f + h, c - g)
        else:
            found = (c + g, f + h, 1 - a - e + i, d - b)
        return SO3._of(unit(found, "matrix"))

    @property
    def quaternion(self) -> NDArray[np.float64]:
        """The unit quaternion (x, y, z, w); of the two that are the same rotation, the one that was computed."""
        return np.array(self._quaternion)

    def axis(self) -> NDArray[np.float64]:
        """Return the axis, of length 1; (0, 0, 0) for the identity."""
        vector = self._quaternion[:3]
        length = math.hypot(*vector)
        return np.array([value / length if length else 0.0 for value in vector])

    def angle(self) -> float:
        """Return the angle about the axis, from 0 to 2π."""
        return 2 * math.atan2(math.hypot(*self._quaternion[:3]), self._quaternion[3])

    def matrix(self) -> NDArray[np.float64]:
        """Return the rotation as a matrix of 3 by 3."""
        x, y, z, w = self._quaternion
        return np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
            ]
        )

    def euler_angles_rpy(self) -> NDArray[np.float64]:
        """Return roll, pitch and yaw: the rotation is roll about x @ pitch about y @ yaw about z.

        The roll is from -π/2 to π/2; the others may be larger.
        """
        rows = self.matrix()
        sign = -1.0 if rows[2, 2] < 0 else 1.0
        roll = math.atan2(-sign * rows[1, 2], sign * rows[2, 2])
        pitch = math.atan2(rows[0, 2], sign * math.hypot(rows[0, 0], rows[0, 1]))
        cos, sin = math.cos(roll), math.sin(roll)
        yaw = math.atan2(cos * rows[1, 0] + sin * rows[2, 0], cos * rows[1, 1] + sin * rows[2, 1])
        return np.array([roll, pitch, yaw])

    def inverse(self) -> SO3:
        """Return the rotation back."""
        x, y, z, w = self._quaternion
        return SO3._of((-x, -y, -z, w))

    def to_so2_xy(self) -> SO2:
        """Return how the xy plane is rotated, without what tilts it."""
        x, y, z, w = self._quaternion
        return SO2.from_direction((1 - (x * x + y * y + 2 * z * z), 2 * z * w))

    def interpolate(self, fraction: float, other: SO3) -> SO3:
        """Return the rotation a fraction of the shorter way to another; less than 0 and more than 1 go beyond."""
        mine, others = self._quaternion, other._quaternion
        dot = math.fsum(a * b for a, b in zip(mine, others, strict=True))
        angle = math.acos(min(abs(dot), 1.0))
        first, second = 1 - fraction, fraction
        if angle > 1e-8:
            first, second = (math.sin(part * angle) / math.sin(angle) for part in (first, second))
        second = math.copysign(1, dot) * second
        found = tuple(first * a + second * b for a, b in zip(mine, others, strict=True))
        return SO3._of(unit(found, "rotation"))

    def __matmul__(self, other: object) -> SO3:
        if not isinstance(other, SO3):
            return NotImplemented
        (x, y, z, w), (a, b, c, d) = self._quaternion, other._quaternion
        product = (
            w * a + x * d + y * c - z * b,
            w * b - x * c + y * d + z * a,
            w * c + x * b - y * a + z * d,
            w * d - x * a - y * b - z * c,
        )
        return SO3._of(unit(product, "rotation"))

    def __mul__(self, points: ArrayLike) -> NDArray[np.float64]:
        """Rotate a point, or an array of points."""
        return apply(self.matrix(), points)

    def __repr__(self) -> str:
        return f"SO3(quaternion={columns(self._quaternion)})"


def rotated(rotation: SO3, vector: Floats) -> Floats:
    """Return a vector after a rotation: v + 2w(q×v) + 2q×(q×v)."""
    x, y, z, w = rotation._quaternion
    a, b, c = vector
    s, t, u = 2 * (y * c - z * b), 2 * (z * a - x * c), 2 * (x * b - y * a)
    return (a + w * s + y * u - z * t, b + w * t + z * s - x * u, c + w * u + x * t - y * s)


def apply(matrix: NDArray[np.float64], points: ArrayLike) -> NDArray[np.float64]:
    """Return points, in an array of any shape whose last axis is x, y, ..., after a linear map."""
    array = np.asarray(points, dtype=np.float64)
    if array.shape[-1:] != matrix.shape[1:]:
        raise TypeError(f"a point has {matrix.shape[1]} coordinates, and {points!r} has another shape")
    return array @ matrix.T


def floats(values: Any, count: int, what: str) -> Floats:
    """Return a vector as floats; raise TypeError if it does not have so many numbers."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape not in ((count,), (count, 1)):
        raise TypeError(f"{what} must be {count} numbers, not {brief(values)}")
    return tuple(array.ravel().tolist())


def square(matrix: Any, size: int) -> NDArray[np.float64]:
    """Return a square matrix; raise TypeError if it is none of that size."""
    array = np.asarray(matrix, dtype=np.float64)
    if array.shape != (size, size):
        raise TypeError(f"matrix must be {size} by {size} numbers, not {matrix!r}")
    return array


def unit(values: Floats, what: str) -> Floats:
    """Return a vector with length 1; raise ValueError if it has no length."""
    length = math.hypot(*values)
    if not _TINY < length < math.inf:
        raise ValueError(f"{what} {values} must have a length other than 0")
    return tuple(value / length for value in values)


def columns(values: Floats, precision: int = 6, separator: str = " ", width: int = 0) -> str:
    """Return numbers in columns of equal width."""
    texts = [f"{value:.{precision}g}" for value in values]
    width = width or max(map(len, texts))
    return separator.join(text.rjust(width) for text in texts)
