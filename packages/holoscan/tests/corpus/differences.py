"""Where headrace does something else than the SDK on purpose, and what the comparison leaves open."""

from __future__ import annotations

from typing import Any

# Operators that do not depend on each other print: which of the lines comes first is not said.
ANY_ORDER = {
    "flow_control.a_list_of_dynamic_flows",
    "pings.ping_thread_pools_from_a_list",
    "services.services_of_an_application_of_fragments",
}

# Readers and writers in real time: which value is read when depends on the machine.
IN_REAL_TIME = {
    "buffers.a_fast_reader_of_an_asynchronous_buffer",
    "buffers.a_slow_reader_of_an_asynchronous_buffer",
}

_NO_GPU = "without a GPU the SDK cannot do it; headrace simulates one"


def _frames(count: int, *shape: int, name: str = "") -> list[Any]:
    """Return the messages of the made-up video."""
    return [{name: ["array", "uint8", [*shape], [value] * 12]} for value in range(1, count + 1)]


# What headrace does, and why. A key that is not named is the same as on the SDK.
DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "applications.a_codelet_has_no_place": (
        {"printed": ["NotImplementedError"], "raised": []},
        "there are no codelets of C++; the constructor says so",
    ),
    "applications.frames_through_a_format_converter": (
        {
            "printed": ["'' [2, 3, 3]"] * 2,
            "raised": [],
            "computes": {"shape": 2, "source": 2},
            "messages": {
                "shape.in": [
                    {"": ["array", "float32", [2, 3, 3], [value] * 12]}
                    for value in (0.003921568859368563, 0.007843137718737125)
                ],
                "source.output": _frames(2, 4, 6, 3),
            },
        },
        _NO_GPU,
    ),
    "applications.frames_into_a_window": (
        {
            "printed": ["ended"],
            "raised": [],
            "computes": {"source": 2},
            "messages": {"source.output": _frames(2, 4, 6, 3, name="video")},
        },
        _NO_GPU,
    ),
    "applications.segmentation_of_scores": (
        {
            "printed": ["'out_tensor' [4, 4, 1]"],
            "raised": [],
            "computes": {"scores": 1, "shape": 1},
            "messages": {
                "scores.out": [
                    {"inference_output_tensor": ["array", "float32", [1, 4, 4, 2], [0.0, 1.0] * 6]},
                ],
                "shape.in": [{"out_tensor": ["array", "uint8", [4, 4, 1], [1] * 8 + [0] * 4]}],
            },
        },
        _NO_GPU,
    ),
    "applications.an_inference_specification": (
        {"printed": ["seg True", "False"], "raised": []},
        "without the libraries of CUDA the SDK cannot import the operator",
    ),
    "applications.raw_frames_of_a_camera": (
        {
            "printed": ["'' [4, 6, 4]"] * 2,
            "raised": [],
            "computes": {"shape": 2, "source": 2},
            "messages": {
                "shape.in": [
                    {"": ["array", "uint8", [4, 6, 4], [value, value, value, 255] * 3]} for value in (1, 2)
                ],
                "source.output": _frames(2, 4, 6, 1),
            },
        },
        _NO_GPU,
    ),
    "applications.a_camera_that_is_not_there": (
        {"raised": ["CameraError"]},
        "the SDK cannot import the operator without a library for JPEG; here the error lists the cameras",
    ),
    "applications.a_model_that_is_missing": (
        {"raised": ["InferenceError"]},
        "the SDK cannot import the operator without the libraries of CUDA; here the error names the file",
    ),
    "applications.the_largest_score_of_a_model": (
        {
            "printed": ["'scaled' [1, 8]"],
            "raised": [],
            "computes": {"shape": 1, "source": 1},
            "messages": {
                "shape.in": [{"scaled": ["array", "float32", [1, 8], [0.5, 0.6666666865348816] * 4]}],
                "source.out": [{"scores": ["array", "float32", [1, 2, 3, 4], [float(n) for n in range(12)]]}],
            },
        },
        "the SDK cannot import the operator without the libraries of CUDA",
    ),
    "applications.a_stream_condition_and_pool": (
        {
            "printed": ["True"] * 2,
            "raised": [],
            "computes": {"sink": 2, "source": 2},
            "messages": {"sink.in": _frames(2, 4, 6, 3), "source.output": _frames(2, 4, 6, 3)},
        },
        _NO_GPU,
    ),
    "applications.a_green_context_and_its_streams": (
        {"printed": ["True"], "raised": [], "computes": {"op": 1}},
        _NO_GPU,
    ),
    "subgraphs.two_subgraphs_of_one_name": (
        {
            "computes": {"one_forwarding": 3, "three_forwarding": 3},
            "messages": {
                f"{name}_forwarding.{port}": [1, 2, 3] for name in ("one", "three") for port in ("in", "out")
            },
        },
        "an operator whose output is not connected runs",
    ),
}

# Programs of tests/oracle in which the layer keeps what headrace does, for the reason that is given there.
KEPT = {
    "a_block_larger_than_the_pools",
    "a_burst_into_a_long_queue_is_a_batch",
    "a_freed_block_is_there_again",
    "a_pool_offers_what_is_larger_than_a_block",
    "a_tensor_ping_larger_than_a_block",
    "a_tensor_ping_without_columns_has_channels",
    "an_exhausted_pool_is_asked_again",
    "an_unconnected_output_is_allowed",
    "an_unknown_port_in_receive",
    "the_sum_of_messages_over_ports",
}
