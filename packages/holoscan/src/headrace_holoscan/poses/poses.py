"""Pose2 and Pose3: where something is and how it is turned, in the plane and in space."""

from __future__ import annotations

import math
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace_holoscan.poses.rotations import SO2, SO3, Floats, apply, columns, floats, rotated, square

R = TypeVar("R", SO2, SO3)


class _Pose(Generic[R]):
    """A rotation, and a translation after it."""

    __slots__ = ("_rotation", "_translation")
    _dimensions: int

    def __init__(self, rotation: R, translation: ArrayLike) -> None:
        self._rotation: R = rotation
        self._translation: Floats = floats(translation, self._dimensions, "translation")

    @classmethod
    def identity(cls) -> Self:
        """Return the pose that changes nothing."""
        return cls()  # type: ignore[call-arg]

    @classmethod
    def from_translation(cls, translation: ArrayLike) -> Self:
        """Return the pose without a rotation."""
        made = cls.identity()
        made.translation = translation
        return made

    @property
    def rotation(self) -> R:
        """The rotation."""
        return self._rotation

    @rotation.setter
    def rotation(self, rotation: R) -> None:
        if not isinstance(rotation, type(self._rotation)):
            raise TypeError(
                f"rotation of a {type(self).__name__} must be an {type(self._rotation).__name__}, not {rotation!r}"
            )
        self._rotation = rotation

    @property
    def translation(self) -> NDArray[np.float64]:
        """The translation; assign an array to change it, since this one is a read-only copy."""
        copy = np.array(self._translation)
        copy.flags.writeable = False
        return copy

    @translation.setter
    def translation(self, translation: ArrayLike) -> None:
        self._translation = floats(translation, self._dimensions, "translation")

    def matrix(self) -> NDArray[np.float64]:
        """Return the pose as a matrix for homogeneous coordinates."""
        size = self._dimensions
        matrix = np.eye(size + 1)
        matrix[:size, :size] = self._rotation.matrix()
        matrix[:size, size] = self._translation
        return matrix

    def __mul__(self, points: ArrayLike) -> NDArray[np.float64]:
        """Transform a point, or an array of points whose last axis is x, y, ..."""
        moved: NDArray[np.float64] = apply(self._rotation.matrix(), points) + np.array(self._translation)
        return moved


class Pose2(_Pose[SO2]):
    """A rotation of the plane and a translation after it; `Pose2()` is the identity."""

    __slots__ = ()
    _dimensions = 2

    def __init__(self, rotation: SO2 | None = None, translation: ArrayLike = (0.0, 0.0)) -> None:
        super().__init__(rotation or SO2(), translation)

    @staticmethod
    def from_rotation(angle: float) -> Pose2:
        """Return the pose without a translation."""
        return Pose2(SO2.from_angle(angle))

    @staticmethod
    def from_xy_a(x: float, y: float, angle: float) -> Pose2:
        """Return the pose at a point, turned by an angle."""
        return Pose2(SO2.from_angle(angle), (x, y))

    @staticmethod
    def from_matrix(matrix: ArrayLike) -> Pose2:
        """Return the pose of a matrix of 3 by 3."""
        array = square(matrix, 3)
        return Pose2(SO2.from_direction(array[:2, 0]), array[:2, 2])

    @property
    def angle(self) -> float:
        """The angle of the rotation, from -π to π."""
        return self._rotation.angle()

    def inverse(self) -> Pose2:
        """Return the pose back."""
        back = self._rotation.inverse()
        return Pose2(back, -(back * self._translation))

    def __matmul__(self, other: object) -> Pose2:
        if not isinstance(other, Pose2):
            return NotImplemented
        return Pose2(self._rotation @ other._rotation, self * other._translation)

    def __repr__(self) -> str:
        return f"Pose2d(translation={columns(self._translation)}, rotation={self.angle:g})"


class Pose3(_Pose[SO3]):
    """A rotation of space and a translation after it; `Pose3()` is the identity."""

    __slots__ = ()
    _dimensions = 3

    def __init__(self, rotation: SO3 | None = None, translation: ArrayLike = (0.0, 0.0, 0.0)) -> None:
        super().__init__(rotation or SO3(), translation)

    @staticmethod
    def _of(rotation: SO3, translation: Floats) -> Pose3:
        made = Pose3.__new__(Pose3)
        made._rotation, made._translation = rotation, translation
        return made

    @staticmethod
    def from_rotation(axis: ArrayLike, angle: float) -> Pose3:
        """Return the pose without a translation."""
        return Pose3(SO3.from_axis_angle(axis, angle))

    @staticmethod
    def from_matrix(matrix: ArrayLike) -> Pose3:
        """Return the pose of a matrix of 4 by 4."""
        array = square(matrix, 4)
        return Pose3(SO3.from_matrix(array[:3, :3]), array[:3, 3])

    @staticmethod
    def from_pose2_xy(pose: Pose2) -> Pose3:
        """Return a pose of the plane as one in the xy plane of space."""
        return Pose3(SO3.from_so2_xy(pose.rotation), (*pose.translation, 0.0))

    def to_pose2_xy(self) -> Pose2:
        """Return what the pose does in the xy plane."""
        return Pose2(self._rotation.to_so2_xy(), self._translation[:2])

    def copy(self) -> Pose3:
        """Return the same pose as another object."""
        return Pose3._of(self._rotation, self._translation)

    def inverse(self) -> Pose3:
        """Return the pose back."""
        back = self._rotation.inverse()
        x, y, z = rotated(back, self._translation)
        return Pose3._of(back, (-x, -y, -z))

    def interpolate(self, fraction: float, other: Pose3) -> Pose3:
        """Return the pose a fraction of the way to another, with translation and rotation by themselves.

        The point moves along a line while the rotation turns at a constant rate.
        """
        moved = zip(self._translation, other._translation, strict=True)
        translation = tuple(a + fraction * (b - a) for a, b in moved)
        return Pose3._of(self._rotation.interpolate(fraction, other._rotation), translation)

    def interpolate_screw(self, fraction: float, other: Pose3) -> Pose3:
        """Return the pose a fraction of the way to another, with translation and rotation as one motion.

        The point moves along a screw, as a body that turns and advances at constant rates.
        """
        return self @ (self.inverse() @ other)._power(fraction)

    def _power(self, exponent: float) -> Pose3:
        """Return the motion done so many times: that along the axis grows, that across it goes in a circle."""
        # Of the two quaternions of a rotation, the one that turns less far: the body takes the shorter way.
        quaternion = self._rotation.quaternion
        rotation = SO3.from_normalized_quaternion(quaternion if quaternion[3] >= 0 else -quaternion)
        angle = rotation.angle()
        if angle < 1e-9:
            return Pose3._of(self._rotation, tuple(exponent * value for value in self._translation))
        axis = tuple(rotation.axis().tolist())
        along = math.fsum(a * b for a, b in zip(axis, self._translation, strict=True))
        across = tuple(t - along * a for t, a in zip(self._translation, axis, strict=True))
        scale = math.sin(exponent * angle / 2) / math.sin(angle / 2)
        turned = rotated(SO3.from_axis_angle(axis, (exponent - 1) * angle / 2), across)
        translation = tuple(scale * t + exponent * along * a for t, a in zip(turned, axis, strict=True))
        return Pose3._of(SO3.from_axis_angle(axis, exponent * angle), translation)

    def __matmul__(self, other: object) -> Pose3:
        if not isinstance(other, Pose3):
            return NotImplemented
        moved = zip(rotated(self._rotation, other._translation), self._translation, strict=True)
        return Pose3._of(self._rotation @ other._rotation, tuple(a + b for a, b in moved))

    def __repr__(self) -> str:
        values = self._rotation.matrix()
        width = max(len(f"{value:.4g}") for value in values.flat)
        rows = ";\n ".join(columns(tuple(row), 4, ", ", width) for row in values)
        return f"Pose3d(translation={columns(self._translation)}, rotation=[{rows}])"
