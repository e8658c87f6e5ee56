"""Camera: from where layers in 3D are seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import radians, tan
from typing import Any

import numpy as np

from headrace.brief import brief
from headrace.viewer.opencv import opencv

_FIELD_OF_VIEW = radians(60)
_NEAR, _FAR = 0.1, 1000.0


@dataclass(frozen=True, slots=True)
class Pose3D:
    """The rotation (9 numbers, row by row) and the translation that take the world to the camera."""

    rotation: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    translation: tuple[float, ...] = (0.0, 0.0, 0.0)


def vector(value: Any, what: str) -> tuple[float, float, float]:
    """Return three numbers as a tuple, or raise ValueError naming `what`."""
    try:
        numbers = np.asarray(value, dtype=np.float64).ravel()
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.size != 3 or not np.isfinite(numbers).all():
        raise ValueError(f"{what} must be 3 numbers (x, y, z), not {brief(value)}")
    x, y, z = numbers.tolist()
    return x, y, z


@dataclass(frozen=True, slots=True)
class Camera:
    """A camera with a field of view of 60 degrees; x points right, y up, and z towards the viewer.

    Parameters
    ----------
    eye
        Where the camera is.
    look_at
        The point that it looks at.
    up
        The direction that is up in the picture.
    """

    eye: tuple[float, float, float] = (0.0, 0.0, 1.0)
    look_at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    up: tuple[float, float, float] = field(default=(0.0, 1.0, 0.0))

    def view_matrix(self) -> np.ndarray:
        """Return the matrix that takes the world to the camera."""
        eye, target = np.array(self.eye), np.array(self.look_at)
        forward = _unit(target - eye, np.array([0.0, 0.0, -1.0]))
        up = np.array(self.up, dtype=np.float64)
        if np.linalg.norm(np.cross(forward, up)) < 1e-9:  # looking along `up`: any other direction will do
            up = np.array([0.0, 0.0, 1.0]) if abs(forward[1]) > 0.9 else np.array([0.0, 1.0, 0.0])
        right = _unit(np.cross(forward, up), np.array([1.0, 0.0, 0.0]))
        matrix = np.eye(4)
        matrix[:3, :3] = right, np.cross(right, forward), -forward
        matrix[:3, 3] = -matrix[:3, :3] @ eye
        return matrix

    def projection(self, aspect: float) -> np.ndarray:
        """Return the matrix that takes the world to x and y from -1 to 1 (y down) and a depth from 0 to 1.

        Parameters
        ----------
        aspect
            The width of the picture divided by its height.
        """
        scale = 1 / tan(_FIELD_OF_VIEW / 2)
        matrix = np.zeros((4, 4))
        matrix[0, 0] = scale / aspect
        matrix[1, 1] = -scale  # down
        matrix[2, 2:] = _FAR / (_NEAR - _FAR), _FAR * _NEAR / (_NEAR - _FAR)
        matrix[3, 2] = -1
        whole: np.ndarray = matrix @ self.view_matrix()
        return whole

    def pose(self) -> Pose3D:
        """Return the camera's pose."""
        matrix = self.view_matrix()
        return Pose3D(tuple(matrix[:3, :3].ravel().tolist()), tuple(matrix[:3, 3].tolist()))

    def orbit(self, right: float, down: float) -> Camera:
        """Return the camera moved around the point that it looks at, by angles in radians."""
        target, arm = np.array(self.look_at), np.array(self.eye) - np.array(self.look_at)
        up = _unit(np.array(self.up), np.array([0.0, 1.0, 0.0]))
        arm = _rotation(up, -right) @ arm
        side = np.cross(up, arm)
        if np.linalg.norm(side) > 1e-9:
            tilted = _rotation(_unit(side, up), -down) @ arm
            # Stops before the pole, where up and down would change places.
            if np.linalg.norm(np.cross(up, _unit(tilted, up))) > 0.02:
                arm = tilted
        return Camera(vector(target + arm, "eye"), self.look_at, self.up)

    def pan(self, right: float, down: float) -> Camera:
        """Return the camera moved in the plane of the picture, by fractions of its height."""
        rows = self.view_matrix()[:3, :3]
        size = 2 * tan(_FIELD_OF_VIEW / 2) * float(np.linalg.norm(np.subtract(self.eye, self.look_at)))
        step = (-right * rows[0] + down * rows[1]) * size
        return Camera(
            vector(np.array(self.eye) + step, "eye"), vector(np.array(self.look_at) + step, "at"), self.up
        )

    def dolly(self, factor: float) -> Camera:
        """Return the camera with its distance to the point that it looks at multiplied."""
        target, arm = np.array(self.look_at), np.array(self.eye) - np.array(self.look_at)
        length = max(float(np.linalg.norm(arm)), 1e-6)
        factor = min(max(length * factor, 0.11), _FAR / 2) / length
        return Camera(vector(target + arm * factor, "eye"), self.look_at, self.up)


def _unit(direction: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(direction))
    return direction / length if length > 1e-12 else otherwise


def _rotation(axis: np.ndarray, angle: float) -> Any:
    return opencv().Rodrigues(axis * angle)[0]
