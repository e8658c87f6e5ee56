"""The replayer: what it plays, when, and how it ends; in virtual time but for the tests of real time."""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition
from headrace.core import GraphError, ParameterError
from headrace.resources import RealtimeClock, SyntheticClock
from headrace.testing import run_operator
from headrace.video import VideoFileError, write_video
from headrace_holoscan.ready import VideoStreamReplayerOp
from headrace_holoscan.recordings import EntityWriter
from tests.harness import App, MakeScheduler, Step, greedy, multi_thread, run, sink, wait_until

MS = 1_000_000


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    # The thread of run_async ends right after its future.
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads")


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """A recording of five frames, at 0, 10, 20, 35 and 40 ms."""
    with EntityWriter(tmp_path, "clip") as writer:
        for number, at in enumerate((0, 10, 20, 35, 40)):
            writer.write({"": np.full((4, 6, 3), number, np.uint8)}, 5_000 * MS + at * MS)
    return tmp_path


def played(outcome: Any) -> list[tuple[int, float]]:
    """Return the number in each frame, and when it was emitted in milliseconds."""
    return [(int(np.asarray(one.data[""]).max()), one.at / MS) for one in outcome.messages["output"]]


def test_frames_come_at_their_recorded_times(clip: Path) -> None:
    outcome = run_operator(VideoStreamReplayerOp, directory=clip, basename="clip")
    assert played(outcome) == [(0, 0), (1, 10), (2, 20), (3, 35), (4, 40)]
    assert outcome.operator.frames_emitted == 5
    assert outcome.steps == 5  # no empty tick at the end


def test_frames_come_at_a_given_rate(clip: Path) -> None:
    outcome = run_operator(VideoStreamReplayerOp, directory=clip, basename="clip", frame_rate=3)
    assert [message.at for message in outcome.messages["output"]] == [
        round(number * 1e9 / 3) for number in range(5)
    ]


def test_a_clock_that_was_set_back_while_recording_does_not_stop_the_clip(tmp_path: Path) -> None:
    with EntityWriter(tmp_path, "clip") as writer:
        for number, at in enumerate((100, 110, 50, 120)):
            writer.write({"": np.full(2, number, np.uint8)}, at * MS)
    outcome = run_operator(VideoStreamReplayerOp, directory=tmp_path, basename="clip", repeat=True, count=5)
    assert played(outcome)[:4] == [(0, 0), (1, 10), (2, 10), (3, 20)]
    with EntityWriter(tmp_path, "clip") as writer:
        for number, at in enumerate((100, 110, 50)):
            writer.write({"": np.full(2, number, np.uint8)}, at * MS)
    outcome = run_operator(VideoStreamReplayerOp, directory=tmp_path, basename="clip", repeat=True, count=5)
    assert played(outcome)[2:4] == [(2, 10), (0, 43.333333)]  # the interval is not known: that of 30 a second


def test_without_real_time_frames_come_as_fast_as_they_are_received(clip: Path) -> None:
    outcome = run_operator(
        VideoStreamReplayerOp, directory=clip, basename="clip", realtime=False, frame_rate=1
    )
    assert played(outcome) == [(number, 0) for number in range(5)]


def test_a_repeat_goes_on_one_mean_interval_after_the_last_frame(clip: Path) -> None:
    outcome = run_operator(VideoStreamReplayerOp, directory=clip, basename="clip", repeat=True, count=12)
    assert played(outcome)[4:8] == [(4, 40), (0, 50), (1, 60), (2, 70)]
    assert played(outcome)[-1] == (1, 110)
    assert len(played(outcome)) == 12


def test_a_count_ends_the_run_in_the_middle(clip: Path) -> None:
    assert len(run_operator(VideoStreamReplayerOp, directory=clip, basename="clip", count=3)["output"]) == 3


def test_a_count_beyond_the_end_ends_at_the_end(clip: Path) -> None:
    assert len(run_operator(VideoStreamReplayerOp, directory=clip, basename="clip", count=99)["output"]) == 5


def test_the_recorded_time_is_the_acquisition_timestamp(clip: Path) -> None:
    outcome = run_operator(VideoStreamReplayerOp, directory=clip, basename="clip")
    assert [message.acq_timestamp for message in outcome.messages["output"]] == [
        5_000 * MS + at * MS for at in (0, 10, 20, 35, 40)
    ]


def test_a_batch_comes_at_the_time_of_its_last_frame(clip: Path) -> None:
    times = []

    def note(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frames = op_input.receive("in")
        times.append((context.timestamp // MS, [int(np.asarray(one[""]).max()) for one in frames]))

    def compose(app: App) -> None:
        replayer = VideoStreamReplayerOp(app, directory=clip, basename="clip", batch_size=2, read_ahead=1)
        taker = Step(
            app,
            inputs=[("in", {"size": 2})],
            setup=lambda spec: spec.inputs["in"].condition(_available(), min_size=1),
            body=note,
            name="taker",
        )
        app.add_flow(replayer, taker)

    run(compose)
    # The first batch comes at once; the second 25 ms later, as frame 3 is 25 ms after frame 1.
    assert times == [(0, [0, 1]), (25, [2, 3]), (30, [4])]


def _available() -> Any:
    from headrace import ConditionType

    return ConditionType.MESSAGE_AVAILABLE


def test_a_batch_needs_room_behind_it(clip: Path) -> None:
    def compose(app: App) -> None:
        replayer = VideoStreamReplayerOp(app, directory=clip, basename="clip", batch_size=2)
        app.add_flow(replayer, sink(app, []))

    with pytest.raises(GraphError, match="emits up to 2 messages at once"):
        run(compose)


def test_a_late_consumer_is_logged_and_frames_catch_up(clip: Path, caplog: pytest.LogCaptureFixture) -> None:
    times: list[int] = []

    def slow(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        times.append(context.timestamp // MS)
        if len(times) == 1:
            self.fragment.scheduler().clock.sleep_for(33 * MS)

    def compose(app: Any) -> None:
        app.replayer = VideoStreamReplayerOp(app, directory=clip, basename="clip")
        app.add_flow(app.replayer, Step(app, inputs=["in"], body=slow))

    with caplog.at_level(logging.WARNING, "headrace.video"):
        app: Any = run(compose)
    assert times == [0, 33, 33, 35, 40]
    assert app.replayer.frames_late == 2
    assert "is lagging behind: frame 1 was due 23.0 ms ago" in caplog.text
    assert "2 of 5 frames were late" in caplog.text


def test_frames_follow_a_clock_that_the_program_sets(clip: Path) -> None:
    taken = threading.Semaphore(0)
    clock: Any = None

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        taken.release()

    def compose(app: App) -> None:
        replayer = VideoStreamReplayerOp(app, directory=clip, basename="clip")
        app.add_flow(replayer, Step(app, inputs=["in"], body=take))

    class WithClock(App):
        def compose(self) -> None:
            nonlocal clock
            clock = SyntheticClock(self)
            self._settings = {"clock": clock}
            super().compose()

    app = WithClock(compose, multi_thread)
    future = app.run_async()
    taken.acquire()
    clock.advance_by(19 * MS)
    taken.acquire()
    assert not taken.acquire(blocking=False)
    clock.advance_by(100 * MS)
    future.result()
    for _ in range(3):
        taken.acquire()


def test_in_real_time_other_operators_run_while_a_frame_is_awaited(clip: Path) -> None:
    """The reader is held until another operator has run ten times: nothing blocks the only thread."""
    ticks = threading.Event()

    class Held(VideoStreamReplayerOp):
        def frames(self) -> Any:
            def held() -> Iterator[Any]:
                for number, frame in enumerate(VideoStreamReplayerOp.frames(self)):
                    if number == 1:
                        ticks.wait()
                    yield frame

            return held()

    def count(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 10:
            ticks.set()

    taken: list[Any] = []

    def compose(app: App) -> None:
        app.add_flow(Held(app, directory=clip, basename="clip", read_ahead=1), sink(app, taken))
        app.add_operator(Step(app, CountCondition(app, 10), body=count, name="other"))

    class RealTime(App):
        def compose(self) -> None:
            self._settings = {"clock": RealtimeClock(self)}
            super().compose()

    RealTime(compose, greedy).run()
    assert len(taken) == 5


# Video files.


@pytest.fixture
def video(tmp_path: Path) -> Path:
    pytest.importorskip("av")
    frames = [np.full((48, 64, 3), [number * 20, 0, 200], np.uint8) for number in range(5)]
    write_video(tmp_path / "film.mp4", frames, 25)
    return tmp_path


@pytest.mark.parametrize("basename", ["film", "film.mp4"])
def test_a_video_file_is_played_as_rgb(video: Path, basename: str) -> None:
    outcome = run_operator(VideoStreamReplayerOp, directory=video, basename=basename)
    messages = outcome.messages["output"]
    assert [message.at for message in messages] == [40 * MS * number for number in range(5)]
    assert [message.acq_timestamp for message in messages] == [40 * MS * number for number in range(5)]
    for number, message in enumerate(messages):
        pixels = np.asarray(message.data[""])
        assert (pixels.shape, pixels.dtype) == ((48, 64, 3), np.uint8)
        np.testing.assert_allclose(pixels.reshape(-1, 3).mean(0), [number * 20, 0, 200], atol=4)


def test_a_video_file_repeats_at_its_rate(video: Path) -> None:
    outcome = run_operator(VideoStreamReplayerOp, directory=video, basename="film", repeat=True, count=7)
    assert [message.at // MS for message in outcome.messages["output"]] == [0, 40, 80, 120, 160, 200, 240]


def test_a_recording_is_preferred_to_a_video_file_of_its_name(clip: Path) -> None:
    (clip / "clip.mp4").write_bytes(b"never opened")
    assert len(run_operator(VideoStreamReplayerOp, directory=clip, basename="clip")["output"]) == 5


# Mistakes.


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        (
            {"basename": "clap"},
            VideoFileError,
            "neither a recording clap.gxf_index.*its files are: clip.gxf_ent",
        ),
        ({"directory": "/no/such"}, VideoFileError, "no folder /no/such"),
        ({"basename": ""}, VideoFileError, "must not be empty"),
        ({"batch_size": 0}, ParameterError, "'batch_size' of .* must be at least 1, not 0"),
        ({"count": -1}, ParameterError, "'count' of .* must be at least 0"),
        ({"frame_rate": -25.0}, ParameterError, "'frame_rate' of .* must be at least 0"),
        ({"frame_rate": float("nan")}, ParameterError, "'frame_rate' of .* must be at least 0"),
        ({"read_ahead": 0}, ParameterError, "'read_ahead' of .* must be at least 1"),
        (
            {"storage_type": "gpu"},
            ValueError,
            "storage_type must be one of 'host', 'device', 'system'.*'recorded'",
        ),
        ({"entity_serializer": 1}, ParameterError, "'entity_serializer' .*: it is not supported"),
        ({"realtime": 1}, ParameterError, "'realtime'.*must be a bool"),
    ],
)
def test_a_wrong_parameter_is_refused_before_anything_runs(
    clip: Path, parameters: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        run_operator(VideoStreamReplayerOp, **{"directory": clip, "basename": "clip", **parameters})


def damage(folder: Path, number: int) -> None:
    """Make one frame of the recording unreadable."""
    path = folder / "clip.gxf_entities"
    entities = bytearray(path.read_bytes())
    size = len(entities) // 5
    struct.pack_into("<Q", entities, number * size + 48, 1)
    path.write_bytes(entities)


def test_a_corrupted_frame_is_skipped_and_the_others_keep_their_times(
    clip: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(clip, 2)
    with caplog.at_level(logging.WARNING, "headrace.video"):
        outcome = run_operator(VideoStreamReplayerOp, directory=clip, basename="clip")
    assert played(outcome) == [(0, 0), (1, 10), (3, 35), (4, 40)]
    assert "skipped an entity" in caplog.text


def test_a_corrupted_frame_is_an_error_if_asked_for(clip: Path) -> None:
    damage(clip, 2)
    taken: list[Any] = []

    def compose(app: App) -> None:
        replayer = VideoStreamReplayerOp(
            app, directory=clip, basename="clip", ignore_corrupted_entities=False, name="replayer"
        )
        app.add_flow(replayer, sink(app, taken))

    with pytest.raises(VideoFileError, match="clip.gxf_entities, entity 2, byte") as raised:
        run(compose)
    assert len(taken) == 2  # those before it were played
    assert any("'replayer'" in note for note in raised.value.__notes__)


def test_a_truncated_recording_plays_what_is_complete(clip: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = clip / "clip.gxf_entities"
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING, "headrace.video"):
        assert len(run_operator(VideoStreamReplayerOp, directory=clip, basename="clip")["output"]) == 4
    assert "clip.gxf_entities, entity 4" in caplog.text
    with pytest.raises(VideoFileError, match="entity 4, byte"):
        run_operator(VideoStreamReplayerOp, directory=clip, basename="clip", ignore_corrupted_entities=False)


def test_a_file_that_is_no_recording_is_an_error_even_if_corrupted_ones_are_ignored(clip: Path) -> None:
    (clip / "clip.gxf_entities").write_bytes(b"text, and nothing else" * 100)
    with pytest.raises(VideoFileError, match="has no entity that can be read.*entity 0, byte"):
        run_operator(VideoStreamReplayerOp, directory=clip, basename="clip")


def test_an_empty_recording_is_an_error_unless_corrupted_ones_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    EntityWriter(tmp_path, "clip").close()
    with pytest.raises(
        VideoFileError, match=r"clip.gxf_entities and clip.gxf_index are empty: there is nothing to play"
    ):
        run_operator(
            VideoStreamReplayerOp, directory=tmp_path, basename="clip", ignore_corrupted_entities=False
        )
    caplog.clear()
    for repeat in (False, True):
        assert (
            run_operator(VideoStreamReplayerOp, directory=tmp_path, basename="clip", repeat=repeat)["output"]
            == []
        )
        assert [text for text in caplog.messages if "are empty: there is nothing to play" in text]
        caplog.clear()


# Ends.


def test_stopping_the_run_ends_an_endless_replayer(clip: Path, scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        def stop(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            if self.ticks == 20:
                self.fragment.stop_execution()

        replayer = VideoStreamReplayerOp(app, directory=clip, basename="clip", repeat=True)
        app.add_flow(replayer, Step(app, inputs=["in"], body=stop))

    run(compose, scheduler)


def test_a_second_run_plays_from_the_beginning(clip: Path) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        app.add_flow(VideoStreamReplayerOp(app, directory=clip, basename="clip", count=2), sink(app, taken))

    app = App(compose)
    app.run()
    app.run()
    assert [int(np.asarray(message[""]).max()) for message in taken] == [0, 1, 0, 1]


def test_a_replayer_that_restarts_after_an_error_plays_from_the_beginning(
    clip: Path, scheduler: MakeScheduler
) -> None:
    class FailsOnce(VideoStreamReplayerOp):
        failed = False

        def emit_frame(self, frame: Any, op_output: Any, context: Any) -> None:
            if self.frames_emitted == 2 and not self.failed:
                self.failed = True
                raise ZeroDivisionError
            super().emit_frame(frame, op_output, context)

    taken: list[Any] = []

    def compose(app: App) -> None:
        replayer = FailsOnce(app, directory=clip, basename="clip", on_error={"restart": 1})
        app.add_flow(replayer, sink(app, taken))

    run(compose, scheduler)
    assert [int(np.asarray(message[""]).max()) for message in taken] == [0, 1, 0, 1, 2, 3, 4]


def test_a_failed_start_leaves_no_thread(clip: Path) -> None:
    class Unstartable(Step):
        def start(self) -> None:
            raise ZeroDivisionError

    def compose(app: App) -> None:
        app.add_flow(
            VideoStreamReplayerOp(app, directory=clip, basename="clip"), Unstartable(app, inputs=["in"])
        )

    with pytest.raises(ZeroDivisionError):
        run(compose)
