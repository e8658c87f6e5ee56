"""PoseTree: frames, the poses between them over time, and the pose of any frame as seen from another.

The edges that are connected at a time form trees, so that there is one way between two frames at most. Changes are
numbered: a query for an earlier version does not see later ones. One lock guards the whole tree, since a query
takes microseconds.
"""

from __future__ import annotations

import math
import threading
from typing import TypeAlias, TypeVar

from headrace.vocabulary import choices, whole_number
from headrace_holoscan.poses.history import EdgeHistory, PoseTreeAccessMethod, Sample
from headrace_holoscan.poses.poses import Pose2, Pose3

Frame: TypeAlias = int | str
T = TypeVar("T")
_LONGEST_NAME = 127


class PoseTreeError(RuntimeError):
    """A frame or an edge is not there, is there already, or cannot be changed like this."""


class _Frame:
    """A frame: its name, and its edges by the uid of the frame at the other end."""

    def __init__(self, name: str, most_edges: int) -> None:
        self.name = name
        self.most_edges = most_edges
        self.edges: dict[int, EdgeHistory] = {}


class PoseTree:
    """Frames by name or number (uid), and the poses between them over time; every thread may use it at any time.

    Parameters
    ----------
    number_frames, number_edges
        The most frames and edges.
    history_length
        The most poses that all edges can keep together.
    default_number_edges
        The most edges of a frame for which no other number is given.
    default_history_length
        The most poses of an edge that `set` creates. An edge that has more forgets the oldest.
    """

    def __init__(
        self,
        number_frames: int = 1024,
        number_edges: int = 16384,
        history_length: int = 1048576,
        default_number_edges: int = 16,
        default_history_length: int = 1024,
    ) -> None:
        limits = {
            "number_frames": number_frames,
            "number_edges": number_edges,
            "history_length": history_length,
            "default_number_edges": default_number_edges,
            "default_history_length": default_history_length,
        }
        self._limits = {name: whole_number(value, f"PoseTree: {name}", 1) for name, value in limits.items()}
        self._lock = threading.Lock()
        self._frames: dict[int, _Frame] = {}
        self._names: dict[str, int] = {}
        # Each edge by the uids of its frames, the smaller one first; the history has the pose of that direction.
        self._edges: dict[tuple[int, int], EdgeHistory] = {}
        self._version = 1
        self._next_uid, self._uid_step = 1, 1

    # Frames.

    def set_multithreading_info(self, start_id: int = 1, increment: int = 1) -> None:
        """Set the first uid and the step to the next, so that several trees give out different ones."""
        with self._lock:
            self._next_uid = self._at_least_one(start_id, "start_id")
            self._uid_step = self._at_least_one(increment, "increment")

    def create_frame(self, name: str = "", number_edges: int | None = None) -> int:
        """Create a frame and return its uid; `number_edges` is the most edges it can have."""
        with self._lock:
            return self._create(None, name, number_edges)

    def create_frame_with_id(self, id: int, name: str = "") -> int:  # noqa: A002 (the SDK's name)
        """Create a frame with a uid of the caller's choice."""
        with self._lock:
            return self._create(whole_number(id, "PoseTree: id", 0), name, None)

    def find_frame(self, name: str) -> int:
        """Return the uid of a frame."""
        with self._lock:
            return self._uid(name)

    def find_or_create_frame(self, name: str, number_edges: int | None = None) -> int:
        """Return the uid of a frame, which is created if there is none of that name."""
        with self._lock:
            return self._names[name] if name in self._names else self._create(None, name, number_edges)

    def get_frame_name(self, uid: int) -> str:
        """Return the name of a frame."""
        with self._lock:
            return self._frames[self._uid(uid)].name

    def get_frame_uids(self, maximum_number_frames: int = 1024) -> list[int]:
        """Return the uids of all frames; raise if there are more than so many."""
        with self._lock:
            return _at_most(list(self._names.values()), maximum_number_frames, "frames")

    def get_frame_names(self, maximum_number_frames: int = 1024) -> list[str]:
        """Return the names of all frames; raise if there are more than so many."""
        with self._lock:
            return _at_most(list(self._names), maximum_number_frames, "frames")

    def delete_frame(self, uid: Frame) -> int:
        """Delete a frame, its edges and their history, for earlier versions too; return the new version."""
        with self._lock:
            found = self._uid(uid)
            for other in list(self._frames[found].edges):
                self._remove_edge(found, other)
            del self._names[self._frames.pop(found).name]
            return self._next_version()

    def disconnect_frame(self, name: Frame, time: float) -> int:
        """Disconnect all edges of a frame from a time on, and return the new version."""
        with self._lock:
            uid = self._uid(name)
            for other in self._frames[uid].edges:
                self._check_time(uid, other, time)
            version = self._next_version()
            for history in self._frames[uid].edges.values():
                history.add(time, version, None)
            return version

    # Edges.

    def create_edges(
        self,
        lhs: Frame,
        rhs: Frame,
        number_edges: int = 16,
        method: PoseTreeAccessMethod = PoseTreeAccessMethod.DEFAULT,
    ) -> int:
        """Create an edge, which `set` would do as well, and return the new version.

        Parameters
        ----------
        lhs, rhs
            The frames.
        number_edges
            The most poses that it keeps; the SDK's name for it.
        method
            How its poses are found unless a query says so.
        """
        with self._lock:
            return self._create_edge(*self._pair(lhs, rhs), number_edges, PoseTreeAccessMethod(method))

    def delete_edge(self, lhs: Frame, rhs: Frame) -> int:
        """Delete an edge and its history, for earlier versions too; return the new version."""
        with self._lock:
            pair = self._pair(lhs, rhs)
            self._edge(*pair)
            self._remove_edge(*pair)
            return self._next_version()

    def disconnect_edge(self, lhs: Frame, rhs: Frame, time: float) -> int:
        """Disconnect two frames from a time on, and return the new version; the poses before stay."""
        with self._lock:
            pair = self._pair(lhs, rhs)
            history = self._edge(*pair)
            self._check_time(*pair, time)
            history.add(time, self._next_version(), None)
            return self._version

    def get_edge_uids(self, maximum_number_edges: int = 1024) -> list[tuple[int, int]]:
        """Return the edges that are connected now, as uids; raise if there are more than so many."""
        with self._lock:
            found = [pair for pair, history in self._edges.items() if history.is_connected]
            return _at_most(found, maximum_number_edges, "edges")

    def get_edge_names(self, maximum_number_edges: int = 1024) -> list[tuple[str, str]]:
        """Return the edges that are connected now, as names; raise if there are more than so many."""
        with self._lock:
            found = [
                (self._frames[lhs].name, self._frames[rhs].name)
                for (lhs, rhs), history in self._edges.items()
                if history.is_connected
            ]
            return _at_most(found, maximum_number_edges, "edges")

    # Poses.

    def set(self, lhs: Frame, rhs: Frame, time: float, pose: Pose3 | Pose2) -> int:
        """Set the pose of `rhs` as seen from `lhs`, from a time on; return the new version.

        The pose takes coordinates in `rhs` to coordinates in `lhs`. Times of an edge increase.
        """
        if isinstance(pose, Pose2):
            pose = Pose3.from_pose2_xy(pose)
        elif not isinstance(pose, Pose3):
            raise TypeError(f"PoseTree.set takes a Pose3 or a Pose2, not {pose!r}")
        with self._lock:
            first, second = self._pair(lhs, rhs)
            edge = f"edge {self._called(first)} to {self._called(second)}"
            length = math.hypot(*pose.rotation._quaternion)
            if not all(map(math.isfinite, pose._translation)) or not abs(length - 1) < 1e-6:
                raise PoseTreeError(
                    f"{edge}: the translation of a pose must be finite and its quaternion of length 1, not {pose!r}"
                )
            history = self._edges.get(_sorted(first, second))
            if history is None or not history.is_connected:
                linked = self._path(first, second, math.inf, PoseTreeAccessMethod.PREVIOUS, self._version)
                linked = linked or self._path(
                    first, second, time, PoseTreeAccessMethod.NEAREST, self._version
                )
                if first == second or linked:
                    raise PoseTreeError(
                        f"{edge} would be a second way between them; disconnect or delete an edge of the first way"
                    )
            if history is None:
                self._create_edge(
                    first, second, self._limits["default_history_length"], PoseTreeAccessMethod.DEFAULT
                )
            self._check_time(first, second, time)
            kept = pose.copy() if first < second else pose.inverse()
            self._edges[_sorted(first, second)].add(float(time), self._next_version(), kept)
            return self._version

    def get(
        self,
        lhs: Frame,
        rhs: Frame,
        time: float | None = None,
        method: PoseTreeAccessMethod = PoseTreeAccessMethod.DEFAULT,
        version: int = 0,
    ) -> Pose3:
        """Return the pose of `rhs` as seen from `lhs`, along the edges between them.

        Parameters
        ----------
        lhs, rhs
            The frames.
        time
            The time; the latest pose of each edge unless given.
        method
            How a pose is found between those that were set.
        version
            A version of the tree, whose later changes do not count; the newest unless given.
        """
        with self._lock:
            first, second = self._pair(lhs, rhs)
            if time is None:
                time, method = math.inf, PoseTreeAccessMethod.PREVIOUS
            if math.isnan(time):
                raise PoseTreeError("the time of a pose must be a number, not nan")
            steps = self._path(first, second, time, PoseTreeAccessMethod(method), version or self._version)
            if steps is None:
                when = "now" if time == math.inf else f"at time {time:g}"
                raise PoseTreeError(
                    f"frames {self._called(first)} and {self._called(second)} are not linked {when}"
                    + (f" in version {version}" if version else "")
                )
        pose = Pose3()
        for sample, is_forward in steps:
            found = sample.pose()
            pose = pose @ (found if is_forward else found.inverse())
        return pose

    def get_pose2_xy(
        self,
        lhs: Frame,
        rhs: Frame,
        time: float | None = None,
        method: PoseTreeAccessMethod = PoseTreeAccessMethod.DEFAULT,
        version: int = 0,
    ) -> Pose2:
        """Return what the pose does in the xy plane; the parameters are those of `get`."""
        return self.get(lhs, rhs, time, method, version).to_pose2_xy()

    def get_latest(self, lhs: Frame, rhs: Frame) -> tuple[Pose3, float]:
        """Return the last pose of an edge and its time; the two frames have to be neighbours."""
        with self._lock:
            first, second = self._pair(lhs, rhs)
            history = self._edge(first, second)
            if not history.poses or history.poses[-1].pose is None:
                raise PoseTreeError(f"edge {self._called(first)} to {self._called(second)} has no pose now")
            last = history.poses[-1]
            assert last.pose is not None
            return (last.pose.copy() if first < second else last.pose.inverse()), last.time

    def get_pose_tree_version(self) -> int:
        """Return the number of the last change."""
        return self._version

    # What the methods share; the caller holds the lock.

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    @staticmethod
    def _at_least_one(value: int, what: str) -> int:
        if whole_number(value, f"PoseTree: {what}") < 1:
            raise PoseTreeError(f"PoseTree: {what} must be at least 1, not {value}")
        return int(value)

    def _uid(self, frame: Frame) -> int:
        """Return the uid of a frame that is there."""
        if isinstance(frame, str):
            if frame not in self._names:
                raise PoseTreeError(f"there is no frame {frame!r}; there are {choices(self._names, frame)}")
            return self._names[frame]
        uid = whole_number(frame, "PoseTree: a frame that is not named by a str")
        if uid not in self._frames:
            raise PoseTreeError(f"there is no frame with the uid {uid}; there are {choices(self._names)}")
        return uid

    def _pair(self, lhs: Frame, rhs: Frame) -> tuple[int, int]:
        if isinstance(lhs, str) != isinstance(rhs, str):
            raise TypeError(f"give both frames by name or both by uid, not {lhs!r} and {rhs!r}")
        return self._uid(lhs), self._uid(rhs)

    def _called(self, uid: int) -> str:
        return repr(self._frames[uid].name)

    def _create(self, uid: int | None, name: str, number_edges: int | None) -> int:
        if name.startswith("_") or len(name.encode()) > _LONGEST_NAME:
            raise PoseTreeError(
                f"the name of a frame does not begin with _ and has at most {_LONGEST_NAME} bytes, unlike {name!r}"
            )
        if name in self._names or uid in self._frames:
            raise PoseTreeError(
                f"there is a frame {name!r} already"
                if name in self._names
                else f"there is a frame with the uid {uid} already"
            )
        self._check_limit("number_frames", len(self._frames) + 1)
        if uid is None:
            while self._next_uid in self._frames:
                self._next_uid += self._uid_step
            uid = self._next_uid
            self._next_uid += self._uid_step
        name = name or f"_frame_{uid}"
        most = self._limits["default_number_edges"] if number_edges is None else number_edges
        self._frames[uid] = _Frame(name, self._at_least_one(most, "number_edges"))
        self._names[name] = uid
        return uid

    def _check_limit(self, limit: str, wanted: int) -> None:
        if wanted > self._limits[limit]:
            raise PoseTreeError(f"the tree is full: {limit} is {self._limits[limit]}; create it with more")

    def _create_edge(self, lhs: int, rhs: int, length: int, method: PoseTreeAccessMethod) -> int:
        called = f"edge {self._called(lhs)} to {self._called(rhs)}"
        if lhs == rhs:
            raise PoseTreeError(f"{called}: a frame has no pose as seen from itself")
        pair = _sorted(lhs, rhs)
        if pair in self._edges:
            raise PoseTreeError(f"{called} exists already")
        length = self._at_least_one(length, "the length of a history")
        for uid in pair:
            if len(self._frames[uid].edges) >= self._frames[uid].most_edges:
                raise PoseTreeError(
                    f"frame {self._called(uid)} has {self._frames[uid].most_edges} edges, its most; create it with "
                    "a larger number_edges"
                )
        self._check_limit("number_edges", len(self._edges) + 1)
        self._check_limit("history_length", length + sum(edge.length for edge in self._edges.values()))
        history = self._edges[pair] = EdgeHistory(length, method)
        self._frames[lhs].edges[rhs] = self._frames[rhs].edges[lhs] = history
        return self._next_version()

    def _edge(self, lhs: int, rhs: int) -> EdgeHistory:
        history = self._edges.get(_sorted(lhs, rhs))
        if history is None:
            raise PoseTreeError(f"there is no edge {self._called(lhs)} to {self._called(rhs)}")
        return history

    def _remove_edge(self, lhs: int, rhs: int) -> None:
        del self._edges[_sorted(lhs, rhs)], self._frames[lhs].edges[rhs], self._frames[rhs].edges[lhs]

    def _check_time(self, lhs: int, rhs: int, time: float) -> None:
        history = self._edges[_sorted(lhs, rhs)]
        if not math.isfinite(time) or not history.accepts(time):
            last = f"; its last change is at {history.poses[-1].time:g}" if history.poses else ""
            raise PoseTreeError(
                f"edge {self._called(lhs)} to {self._called(rhs)} changes at increasing, finite times, and "
                f"{time:g} is none{last}"
            )

    def _path(
        self, lhs: int, rhs: int, time: float, method: PoseTreeAccessMethod, version: int
    ) -> list[tuple[Sample, bool]] | None:
        """Find the way between two frames at a time; each step with whether it goes from the smaller uid."""
        came_from: dict[int, tuple[int, Sample] | None] = {lhs: None}
        reached = [lhs]
        for uid in reached:
            if uid == rhs:
                break
            for other, history in self._frames[uid].edges.items():
                if other not in came_from:
                    sample = history.sample(time, method, version)
                    if sample is not None:
                        came_from[other] = uid, sample
                        reached.append(other)
        if rhs not in came_from:
            return None
        steps: list[tuple[Sample, bool]] = []
        uid = rhs
        while (step := came_from[uid]) is not None:
            before, sample = step
            steps.append((sample, before < uid))
            uid = before
        return steps[::-1]


def _sorted(lhs: int, rhs: int) -> tuple[int, int]:
    return (lhs, rhs) if lhs < rhs else (rhs, lhs)


def _at_most(found: list[T], most: int, what: str) -> list[T]:
    if len(found) > most:
        raise PoseTreeError(f"there are {len(found)} {what}, more than {most}")
    return found
