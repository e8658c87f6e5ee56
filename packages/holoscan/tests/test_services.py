"""Services and pose trees under the layer, as the SDK has them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace_holoscan import pose_tree
from headrace_holoscan.absent import NotHereError
from headrace_holoscan.core import (
    Application,
    DefaultFragmentService,
    DistributedAppService,
    FragmentService,
    ServiceDriverEndpoint,
    ServiceWorkerEndpoint,
)
from headrace_holoscan.poses import PoseTreeError
from packages.holoscan.tests.poses.programs import tree
from packages.holoscan.tests.poses.test_poses import ANSWERS, same


class Shared(DefaultFragmentService):
    pass


@pytest.fixture
def app() -> Application:
    return Application([])


def test_a_service_is_found_as_itself_and_none_if_absent(app: Application) -> None:
    first, second = Shared(), Shared()
    app.register_service(Shared())
    app.register_service(first)
    app.register_service(second, id="two")
    assert app.service(Shared) is first
    assert app.service(Shared, "two") is second
    assert app.service(Shared, "three") is None


def test_other_objects_are_no_services(app: Application) -> None:
    with pytest.raises(TypeError, match="must be a Resource or a FragmentService"):
        app.register_service(object())


def test_a_service_for_several_processes_is_one_in_this_process(app: Application) -> None:
    service = DistributedAppService()
    app.register_service(service)
    assert app.service(DistributedAppService) is service
    assert isinstance(service, FragmentService | ServiceDriverEndpoint | ServiceWorkerEndpoint)
    calls: list[Any] = [
        lambda: service.driver_start("127.0.0.1"),
        service.driver_shutdown,
        lambda: service.worker_connect("127.0.0.1"),
        service.worker_disconnect,
    ]
    for call in calls:
        with pytest.raises(NotHereError, match="all fragments run in this process"):
            call()


def test_a_pose_tree_gives_the_answers_of_the_sdk() -> None:
    assert same(tree(pose_tree, Random(3)), ANSWERS["tree"][3])


def test_a_pose_tree_has_the_limits_of_its_init() -> None:
    made = pose_tree.PoseTree()
    for name in ("number_frames", "history_length", "edges_chunk_size", "history_chunk_size"):
        with pytest.raises(RuntimeError, match="at least 1"):
            made.init(**{name: 0})
    made.init(8, 256, 1024, 4, 4, 1, 1)
    frames = [made.create_frame(name, 1) for name in "abc"]
    made.create_edges(frames[0], frames[1])
    with pytest.raises(PoseTreeError, match="frame 'a' has 1 edges"):
        made.create_edges(frames[0], frames[2])
    with pytest.raises(PoseTreeError, match="init of a tree with frames"):
        made.init()
    made.deinit()
    assert made.get_frame_names() == []


def test_the_history_of_an_edge_is_a_number_of_chunks_long() -> None:
    made = pose_tree.PoseTree()
    made.init(history_chunk_size=4)
    made.create_frame("a")
    made.create_frame("b")
    made.create_edges("a", "b", 5)
    for time in range(20):
        made.set("a", "b", float(time), pose_tree.Pose3())
    made.get("a", "b", 12.0)
    with pytest.raises(RuntimeError, match="not linked at time 11"):
        made.get("a", "b", 11.0)


def test_what_needs_ucx_says_so_when_it_is_used() -> None:
    for name in pose_tree.__all__:
        if "UCX" in name:
            with pytest.raises(NotHereError, match=f"{name} is not here: UCX is not used"):
                getattr(pose_tree, name)()
