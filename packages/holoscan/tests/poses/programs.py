"""Random programs on rotations, poses and pose trees, whose answers do not depend on who runs them.

Each takes a module with the names of the SDK's ``holoscan.pose_tree`` and returns numbers. ``record.py`` runs them
on the SDK and writes its answers to ``answers.json``; the test runs them here and compares.
"""

from __future__ import annotations

import math
from contextlib import suppress
from random import Random
from typing import Any


def vector(random: Random, count: int = 3) -> list[float]:
    return [random.uniform(-2, 2) for _ in range(count)]


def numbers(value: Any) -> list[float]:
    """Return the numbers of a rotation or a pose; two quaternions of one rotation give the same."""
    if hasattr(value, "translation"):
        return [*(round(float(number), 10) for number in value.translation), *numbers(value.rotation)]
    return [round(float(number), 10) for number in value.matrix().ravel()]


def rotations(module: Any, random: Random) -> list[float]:
    """Everything about two rotations of space and two of the plane."""
    first = module.SO3.from_axis_angle(vector(random), random.uniform(-7, 7))
    second = module.SO3.from_quaternion(vector(random, 4))
    found = [*numbers(first), *numbers(second), *numbers(first @ second), *numbers(second.inverse())]
    found += [
        *first.quaternion,
        *second.quaternion,
        *first.axis(),
        *second.axis(),
        first.angle(),
        second.angle(),
    ]
    found += numbers(module.SO3.from_scaled_axis(vector(random)))
    found += module.SO3.from_matrix(second.matrix()).quaternion.tolist()
    for angle in second.euler_angles_rpy():
        found += [math.cos(angle), math.sin(angle)]
    plane = module.SO2.from_angle(random.uniform(-7, 7))
    other = module.SO2.from_direction(vector(random, 2))
    found += [*numbers(plane @ other), plane.angle(), plane.cos(), other.sin(), other.inverse().angle()]
    return [*found, *numbers(module.SO3.from_so2_xy(other))]


def poses(module: Any, random: Random) -> list[float]:
    """Everything about two poses of space and two of the plane."""
    first = module.Pose3(module.SO3.from_quaternion(vector(random, 4)), vector(random))
    second = module.Pose3.from_rotation(vector(random), random.uniform(-3, 3))
    second.translation = vector(random)
    found = [*numbers(first @ second), *numbers(first.inverse()), *(first * vector(random))]
    plane = module.Pose2.from_xy_a(*vector(random, 2), random.uniform(-4, 4))
    found += [*numbers(plane @ first.to_pose2_xy()), *numbers(plane.inverse()), *(plane * vector(random, 2))]
    found += [*plane.matrix().ravel(), *numbers(module.Pose2.from_matrix(plane.matrix()))]
    return [float(value) for value in [*found, *numbers(module.Pose3.from_pose2_xy(plane))]]


def tree(module: Any, random: Random) -> list[Any]:
    """Frames, edges, poses, disconnections and queries in random order, with the kinds of error."""
    made = module.PoseTree()
    if hasattr(made, "init"):
        made.init()
    methods = list(module.PoseTreeAccessMethod.__members__.values())
    previous = module.PoseTreeAccessMethod.PREVIOUS
    names = [f"frame{number}" for number in range(6)]
    versions = [made.get_pose_tree_version()]
    found: list[Any] = [[made.create_frame(name) for name in names]]
    clock = 0.0
    for _ in range(120):
        lhs, rhs = random.sample(names, 2)
        clock += random.uniform(0.1, 1)
        time = clock + random.choice((0, 0, 0, 0, -3))
        action = random.random()
        asked = random.uniform(-1, clock + 2)
        method, version = random.choice(methods), random.choice((0, 0, random.choice(versions)))
        axis, angle, place = vector(random), random.uniform(-1.2, 1.2), vector(random)
        try:
            if action < 0.45:
                pose = module.Pose3.from_rotation(axis, angle)
                pose.translation = place
                # On the SDK, a pose that is refused leaves its new edge behind.
                with suppress(RuntimeError):
                    made.create_edges(lhs, rhs, 64)
                made.set(lhs, rhs, time, pose)
                versions.append(made.get_pose_tree_version())
                found.append("set")
            elif action < 0.5:
                made.create_edges(lhs, rhs, 64, method)
                found.append("edge")
            elif action < 0.53:
                made.disconnect_edge(lhs, rhs, time)
                found.append("disconnected")
            elif action < 0.54:
                made.delete_edge(lhs, rhs)
                found.append("deleted")
            elif action < 0.58:
                pose, latest = made.get_latest(lhs, rhs)
                # The SDK returns a stale pose for an edge that was disconnected.
                found.append([*numbers(pose), latest] if sorted((lhs, rhs)) in _connected(made) else "error")
            elif action < 0.64:
                found.append(numbers(made.get_pose2_xy(lhs, rhs, asked)))
            elif action < 0.7:
                found.append(numbers(made.get(lhs, rhs, method=previous)))
            else:
                found.append(numbers(made.get(lhs, rhs, asked, method, version)))
        except RuntimeError:
            found.append("error")
    return [*found, sorted(_connected(made))]


def _connected(made: Any) -> list[list[str]]:
    return [sorted(pair) for pair in made.get_edge_names()]


PROGRAMS = {"rotations": rotations, "poses": poses, "tree": tree}


def answers(module: Any) -> dict[str, list[Any]]:
    """Return the answers of all programs, for ten seeds."""
    return {name: [run(module, Random(seed)) for seed in range(10)] for name, run in PROGRAMS.items()}
