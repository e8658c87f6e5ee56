"""Every scenario. The first way of each is headrace as it comes; ratios are of its figure."""

from __future__ import annotations

from benchmarks.sides.scenario import HOLOSCAN, Scenario, Way

_SDK = ("holoscan",)
_LAYER = ("headrace_holoscan",)
_EZMSG = ("ezmsg",)
_CUPY = ("cupy",)


def _chain(length: int) -> Scenario:
    return Scenario(
        f"chain-{length}",
        f"A chain of {length} operators that do no work",
        "µs per step",
        (
            Way("headrace", "chains:of_sdk", ("headrace", "greedy", length)),
            Way("headrace, 2 workers", "chains:of_sdk", ("headrace", "event-based", length)),
            Way("headrace, as a Holoscan program", "chains:of_sdk", ("holoscan", "greedy", length), _LAYER),
            Way(HOLOSCAN, "chains:of_sdk", ("holoscan", "greedy", length), _SDK),
            Way("ezmsg", "ezmsg_programs:chain", (length,), _EZMSG),
            Way("asyncio, by hand", "chains:of_tasks", (length,)),
            Way("a loop over functions, by hand", "chains:of_functions", (length,)),
        ),
    )


SCENARIOS = (
    _chain(5),
    _chain(30),
    _chain(300),
    Scenario(
        "join",
        "One source, eight operators beside each other, and one that takes a message of each",
        "µs per frame",
        (
            Way("headrace", "chains:fan_out", ("headrace",)),
            Way(HOLOSCAN, "chains:fan_out", ("holoscan",), _SDK),
            Way("ezmsg", "ezmsg_programs:fan_out", (), _EZMSG),
        ),
    ),
    Scenario(
        "tracking",
        "The chain of five with its figures tracked",
        "µs per step",
        (
            Way("headrace, tracked", "chains:tracked", ("headrace", True)),
            Way("headrace, not tracked", "chains:tracked", ("headrace", False)),
            Way(f"{HOLOSCAN}, tracked", "chains:tracked", ("holoscan", True), _SDK),
            Way(f"{HOLOSCAN}, not tracked", "chains:tracked", ("holoscan", False), _SDK),
        ),
    ),
    Scenario(
        "wake-up",
        "From emit to the compute of an operator whose thread sleeps, median",
        "µs",
        (
            Way("headrace", "waiting:wake_up", ("headrace",)),
            Way(HOLOSCAN, "waiting:wake_up", ("holoscan",), _SDK),
        ),
    ),
    Scenario(
        "idle",
        "An application that waits for events 10 and 15 ms apart",
        "s of CPU per minute",
        (
            Way("headrace", "waiting:idle", ("headrace",)),
            Way(HOLOSCAN, "waiting:idle", ("holoscan",), _SDK),
        ),
        rounds=2,
    ),
    Scenario(
        "memory",
        "Memory of a process after a million messages through a chain of three",
        "MiB",
        (
            Way("headrace", "waiting:memory", ("headrace",)),
            Way(HOLOSCAN, "waiting:memory", ("holoscan",), _SDK),
            Way("ezmsg", "ezmsg_programs:memory", (), _EZMSG),
        ),
        rounds=1,
        timeout=900.0,
    ),
    Scenario(
        "import",
        "Importing the package, beyond NumPy",
        "ms",
        (
            Way("headrace", "starting:importing", ("headrace",)),
            Way(HOLOSCAN, "starting:importing", ("holoscan.core",), _SDK),
            Way("ezmsg", "starting:importing", ("ezmsg.core",), _EZMSG),
        ),
    ),
    Scenario(
        "start",
        "From the shell to the first message at the end of a chain of five",
        "ms",
        (
            Way("headrace", "starting:first_message", ("headrace",)),
            Way(HOLOSCAN, "starting:first_message", ("holoscan",), _SDK),
            Way("ezmsg", "starting:first_message", ("ezmsg",), _EZMSG),
        ),
    ),
    Scenario(
        "two-processes",
        "An array of 4 MiB from one process to another, 200 a second, median",
        "µs",
        (
            Way("headrace", "processes:of_headrace"),
            Way("ezmsg", "ezmsg_programs:two_processes", (), _EZMSG),
            Way("shared memory and a socket, by hand", "processes:by_hand"),
            Way("a pipe of multiprocessing, by hand", "processes:by_pipe"),
        ),
        rounds=3,
    ),
    Scenario(
        "video",
        "A 4K video from its file to pictures of 1080p",
        "frames per second",
        (
            Way("headrace", "pictures:of_headrace", (), ("av", "cv2")),
            Way("OpenCV, by hand", "pictures:of_opencv", (), ("av", "cv2")),
            Way("GStreamer", "pictures:of_gstreamer", (), ("av", "cv2")),
        ),
        more_is_better=True,
        rounds=3,
    ),
    Scenario(
        "streams",
        "A chain of five operators with a kernel each, on five streams",
        "µs per step",
        (
            Way("headrace", "kernels:of_headrace", (), _CUPY),
            Way("CuPy, streams and events by hand", "kernels:of_cupy", (), _CUPY),
            Way("PyTorch, streams and events by hand", "kernels:of_torch", (), ("torch",)),
            Way(HOLOSCAN, "kernels:of_holoscan", (), (*_SDK, "cupy")),
        ),
        needs_gpu=True,
        rounds=3,
        timeout=60.0,
    ),
    Scenario(
        "captured",
        "The same chain as one CUDA graph for each frame",
        "µs per frame",
        (
            Way("headrace, captured", "kernels:captured", (), _CUPY),
            Way("cuda.core, wait, copy in, launch and record by hand", "kernels:graph_by_hand", (), _CUPY),
        ),
        needs_gpu=True,
        rounds=3,
        timeout=60.0,
    ),
    Scenario(
        "slices",
        "A kernel of 100 µs beside a load that fills the GPU, 99th percentile",
        "µs",
        (
            Way("headrace, on 16 SMs of its own", "kernels:beside_a_load", ("partitioned",)),
            Way("a stream, by hand", "kernels:beside_a_load", ("shared",)),
            Way("a stream of high priority, by hand", "kernels:beside_a_load", ("urgent",)),
            Way("alone on the GPU", "kernels:beside_a_load", ("alone",)),
        ),
        needs_gpu=True,
        rounds=2,
        timeout=60.0,
    ),
    Scenario(
        "wrong-frames",
        "Frames that a reader found changed: it reads each 1 ms late, and lets it go at once",
        "of 400",
        (
            Way("headrace", "kernels:wrong_frames", ("headrace",), _CUPY),
            Way(HOLOSCAN, "kernels:wrong_frames", ("holoscan",), (*_SDK, "cupy")),
            Way("a ring of buffers, ordered by hand", "kernels:wrong_frames", ("by hand",), _CUPY),
        ),
        needs_gpu=True,
        rounds=2,
        timeout=60.0,
    ),
    Scenario(
        "camera",
        "A camera of 4K at 60 frames a second, a network and an overlay to the screen",
        "ms per frame, 99th percentile",
        (Way("headrace", "kernels:camera_to_screen", (), ("cupy",)),),
        needs_gpu=True,
        rounds=1,
        timeout=120.0,
    ),
)
