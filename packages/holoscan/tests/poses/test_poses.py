"""Rotations, poses and pose trees give the SDK's answers, and refuse what cannot be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from headrace_holoscan import poses
from headrace_holoscan.poses import SO2, SO3, Pose2, Pose3, PoseTree, PoseTreeAccessMethod, PoseTreeError
from packages.holoscan.tests.poses.programs import PROGRAMS

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text())
Method = PoseTreeAccessMethod


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, str):
        return bool(ours == theirs)
    return math.isclose(ours, theirs, rel_tol=1e-8, abs_tol=1e-8)


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_programs_give_the_answers_of_the_sdk(name: str) -> None:
    for seed, theirs in enumerate(ANSWERS[name]):
        ours = PROGRAMS[name](poses, Random(seed))
        for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert same(mine, other), f"{name}, seed {seed}, step {step}"


def at(x: float) -> Pose3:
    return Pose3.from_translation([x, 0, 0])


def tree_of(*names: str) -> PoseTree:
    tree = PoseTree()
    for name in names:
        tree.create_frame(name)
    return tree


def test_poses_are_printed_as_by_the_sdk() -> None:
    pose = Pose3(SO3.from_axis_angle([1, 2, 3], 0.7), [1, 2, 3])
    assert repr(pose) == (
        "Pose3d(translation=1 2 3, rotation=[  0.7816,  -0.4829,   0.3947;\n"
        "   0.5501,    0.832, -0.07139;\n   -0.294,    0.273,    0.916])"
    )
    assert repr(pose.rotation) == "SO3(quaternion=0.0916433  0.183287   0.27493  0.939373)"
    assert repr(Pose2.from_xy_a(1, 2, 0.5)) == "Pose2d(translation=1 2, rotation=0.5)"
    assert repr(SO2.from_angle(4.0)) == "SO2(angle=-2.28319)"


def test_a_pose_transforms_one_point_and_many() -> None:
    pose = Pose3(SO3.from_axis_angle([0, 0, 2], math.pi / 2), [1, 2, 3])
    points = np.array([[[1.0, 0, 0], [0, 1, 0]]])
    assert np.allclose(pose * points, [[[1, 3, 3], [0, 2, 3]]])
    assert np.allclose(pose * points[0, 0], (pose.matrix() @ [1, 0, 0, 1])[:3])
    assert np.allclose(pose.rotation * points[0, 0], [0, 1, 0])
    with pytest.raises(TypeError, match="a point has 3 coordinates"):
        pose * [1, 2]


def test_a_screw_takes_the_shorter_way_whichever_quaternion_says_so() -> None:
    turned = SO3.from_axis_angle([0, 0, 1], 0.2).quaternion
    first = Pose3()
    for quaternion in (turned, -turned):
        half = first.interpolate_screw(0.5, Pose3(SO3.from_quaternion(quaternion), [0, 0, 1]))
        assert np.allclose(half.rotation.matrix(), SO3.from_axis_angle([0, 0, 1], 0.1).matrix())
        assert np.allclose(half.translation, [0, 0, 0.5])


def test_a_translation_is_replaced_and_not_changed_inside() -> None:
    pose = at(1)
    with pytest.raises(ValueError, match="read-only"):
        pose.translation[0] = 2
    pose.translation = [4, 5, 6]
    pose.rotation = SO3.from_axis_angle([1, 0, 0], 1)
    assert pose.translation.tolist() == [4, 5, 6]
    with pytest.raises(TypeError, match="must be an SO3"):
        pose.rotation = SO2()  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SO3.from_axis_angle([1, 2], 1), "axis must be 3 numbers"),
        (lambda: SO3.from_axis_angle([0, 0, 0], 1), "axis .* must have a length"),
        (lambda: SO3.from_quaternion("abcd"), "quaternion must be 4 numbers"),
        (lambda: SO3.from_matrix(np.eye(2)), "3 by 3"),
        (lambda: SO2.from_direction([0, 0]), "direction .* must have a length"),
        (lambda: Pose2.from_translation([1, 2, 3]), "translation must be 2 numbers"),
    ],
)
def test_what_is_no_rotation_or_pose_is_refused(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_tree_keeps_its_own_copies() -> None:
    tree = tree_of("a", "b")
    pose = at(1)
    tree.set("a", "b", 0.0, pose)
    pose.translation = [9, 9, 9]
    tree.get("a", "b").translation = [9, 9, 9]
    tree.get_latest("a", "b")[0].translation = [9, 9, 9]
    assert tree.get("a", "b").translation.tolist() == [1, 0, 0]


def test_an_edge_forgets_its_oldest_poses() -> None:
    tree = tree_of("a", "b")
    tree.create_edges("a", "b", 3)
    for time in range(5):
        tree.set("a", "b", time, at(time))
    assert tree.get("a", "b", 2.5).translation[0] == 2.5
    with pytest.raises(PoseTreeError, match="frames 'a' and 'b' are not linked at time 1.5"):
        tree.get("a", "b", 1.5)


def test_the_latest_pose_of_an_edge_with_another_method() -> None:
    tree = tree_of("a", "b")
    tree.create_edges("a", "b", method=Method.EXTRAPOLATE_LINEARLY)
    tree.set("a", "b", 0, at(0))
    tree.set("a", "b", 1, at(1))
    assert tree.get("a", "b").translation[0] == 1
    assert tree.get("a", "b", 3).translation[0] == 3
    assert tree.get("a", "b", 3, Method.NEAREST).translation[0] == 1


def test_frames_have_numbers_and_names() -> None:
    tree = PoseTree()
    tree.set_multithreading_info(3, 4)
    assert tree.create_frame_with_id(7, "seven") == 7
    assert [tree.create_frame("a"), tree.create_frame()] == [3, 11]
    assert tree.get_frame_name(11) == "_frame_11"
    assert tree.find_or_create_frame("a") == 3
    assert tree.find_or_create_frame("b") == 15
    tree.delete_frame(7)
    assert tree.get_frame_names() == ["a", "_frame_11", "b"]
    assert tree.get_frame_name(tree.create_frame("x" * 127)) == "x" * 127
    assert tree.get_frame_uids() == [3, 11, 15, 19]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree.create_frame("a"), "there is a frame 'a' already"),
        (lambda tree: tree.create_frame("_a"), "does not begin with _"),
        (lambda tree: tree.create_frame("x" * 128), "at most 127"),
        (lambda tree: tree.create_frame_with_id(1, "new"), "with the uid 1 already"),
        (lambda tree: tree.find_frame("aa"), "there is no frame 'aa'; there are 'a'"),
        (lambda tree: tree.get_frame_name(99), "no frame with the uid 99"),
        (lambda tree: tree.get_frame_names(2), "there are 4 frames, more than 2"),
        (lambda tree: tree.create_edges("a", "b"), "edge 'a' to 'b' exists already"),
        (lambda tree: tree.create_edges("a", "a"), "a frame has no pose as seen from itself"),
        (lambda tree: tree.create_edges("a", "d", 10**7), "the tree is full: history_length"),
        (lambda tree: tree.set("a", "c", 5.0, at(1)), "edge 'a' to 'c' would be a second way"),
        (lambda tree: tree.set("a", "b", 1.0, at(1)), "increasing.*1 is none; its last change is at 2"),
        (lambda tree: tree.set("a", "b", 2.0, at(1)), "2 is none"),
        (lambda tree: tree.set("a", "b", math.nan, at(1)), "nan is none"),
        (lambda tree: tree.set("a", "d", 1.0, at(math.nan)), "must be finite"),
        (lambda tree: tree.disconnect_edge("a", "d", 1.0), "no edge 'a' to 'd'"),
        (lambda tree: tree.disconnect_frame("b", 1.0), "increasing"),
        (lambda tree: tree.delete_edge("a", "d"), "no edge 'a' to 'd'"),
        (lambda tree: tree.get("a", "d"), "'a' and 'd' are not linked now"),
        (lambda tree: tree.get("a", "b", 2.0, version=1), "not linked at time 2 in version 1"),
        (lambda tree: tree.get("a", "b", math.nan), "must be a number"),
        (lambda tree: tree.get_latest("a", "c"), "no edge 'a' to 'c'"),
        (lambda tree: tree.set_multithreading_info(0, 1), "start_id must be at least 1"),
    ],
)
def test_a_tree_refuses_what_cannot_be_and_stays_as_it_was(change: Any, message: str) -> None:
    tree = tree_of("a", "b", "c", "d")
    tree.set("a", "b", 2.0, at(1))
    tree.set("b", "c", 0.0, at(2))
    before = tree.get_pose_tree_version(), tree.get_frame_names(), tree.get_edge_names()
    with pytest.raises(PoseTreeError, match=message):
        change(tree)
    assert (tree.get_pose_tree_version(), tree.get_frame_names(), tree.get_edge_names()) == before
    assert tree.get("a", "c", 2.0).translation[0] == 3


def test_frames_are_both_named_or_both_numbered() -> None:
    tree = tree_of("a", "b")
    with pytest.raises(TypeError, match="both frames by name or both by uid"):
        tree.get("a", 2)
    with pytest.raises(TypeError, match="takes a Pose3 or a Pose2"):
        tree.set("a", "b", 1.0, "pose")  # type: ignore[arg-type]


def test_a_full_tree_says_what_is_full() -> None:
    tree = PoseTree(number_frames=3, number_edges=1, history_length=20, default_history_length=8)
    for name in "abc":
        tree.create_frame(name, 1)
    with pytest.raises(PoseTreeError, match="number_frames is 3"):
        tree.create_frame("d")
    tree.set("a", "b", 0, at(1))
    with pytest.raises(PoseTreeError, match="frame 'b' has 1 edges"):
        tree.set("b", "c", 0, at(1))
    tree.delete_edge("b", "a")
    tree.set("b", "c", 0, at(1))
    with pytest.raises(ValueError, match="number_edges must be at least 1"):
        PoseTree(number_edges=0)


def test_a_disconnected_frame_is_seen_again_before_that_time() -> None:
    tree = tree_of("a", "b", "c")
    tree.set("a", "b", 0, at(1))
    tree.set("b", "c", 0, at(1))
    tree.disconnect_frame("b", 5)
    assert tree.get_edge_names() == []
    assert tree.get("a", "c", 4).translation[0] == 2
    with pytest.raises(PoseTreeError, match="has no pose now"):
        tree.get_latest("a", "b")
    tree.set("a", "c", 5, at(7))
    assert tree.get("a", "c").translation[0] == 7
