"""Refusals: why a frame cannot be captured, in words that name the operator, the call and the remedy."""

from __future__ import annotations

import linecache
import sys
import traceback


class Refusal(Exception):
    """A reason not to capture."""


# What the libraries say inside a capture, and what helps.
_REMEDIES = {
    ("D2H", "device to host", "CAPTURE_UNSUPPORTED", "CaptureUnsupported", "when stream is capturing"): (
        "it waits for the device or copies to the host, which a graph cannot; move that to an operator behind the "
        "segment, or keep the value on the device"
    ),
    ("H2D", "host to device"): (
        "it copies from the host, which a graph cannot; make the array once, in start, or use a knob for a value "
        "that changes"
    ),
    ("cuRAND", "CUDA generator", "offset for a CUDA generator"): (
        "it draws random numbers, which would be the same in every frame; draw them before the segment"
    ),
    ("CAPTURE_ISOLATION", "CaptureIsolation", "uncaptured work"): (
        "it waits for work on a stream that is not the operator's; use the stream of receive_cuda_stream for "
        "everything, also where arrays are passed from one library to another"
    ),
    ("OUT_OF_MEMORY", "OutOfMemory", "out of memory"): (
        "there is too little memory for a graph, which keeps what its operators allocate; free some"
    ),
    ("CAPTURED_EVENT", "CapturedEvent"): "it asks whether an event is done, which a graph cannot tell",
    ("UNJOINED", "CaptureUnjoined"): (
        "it works on another stream that its own does not wait for; end with context.synchronize_streams"
    ),
    ("capture", "Capture", "capturing"): "it cannot be captured",
}


def refusal_of(error: BaseException, operator: str) -> Refusal:
    """Return the reason for an error that was raised while an operator was being recorded."""
    text = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    why = next((why for marks, why in _REMEDIES.items() if any(mark in text for mark in marks)), "")
    call = raising_line(error)
    where = f" at {call}" if call else ""
    who = f"operator {operator!r}" if operator else "one of its operators"
    return Refusal(f"{who}{where}: {why or 'it raised an error while it was recorded'} ({text})")


_LIBRARIES = ("headrace", "cupy", "torch", "numpy", "cuda", "numba")


def raising_line(error: BaseException) -> str:
    """Return the line of the program that raised, and where it is: the last one that is not in a library."""
    found = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not _is_of_a_library(frame.f_globals.get("__name__"), frame.f_code.co_filename):
            found = frame.f_code.co_filename, number
    if found is None:
        return ""
    file, number = found
    line = linecache.getline(file, number).strip()
    place = f"{file.rpartition('/')[2]}, line {number}"
    return f"{line!r} ({place})" if line else place


def _is_of_a_library(module: object, file: str) -> bool:
    top = str(module).partition(".")[0]
    if str(module).startswith("headrace.operators"):
        return False
    # headrace_ begins the names of distributions that stand on headrace.
    is_library = top in _LIBRARIES or top.startswith("headrace_")
    return is_library or top in sys.stdlib_module_names or "site-packages" in file
