"""An error about an entry of a message names the operator, the output and the entry, wherever it is raised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Tensor, TensorMap, as_tensor
from headrace.tensor import TensorError, tensor_to_gpumat
from tests.harness import Step, run
from tests.harness.producers import CUDA, ROCM, Library


def sending(
    data: Any, take: Any = None, *, relays: dict[str, str] | None = None, stream: bool = False
) -> None:
    """Emit an object once; each relay passes the first entry on under another name; `take` has the message."""

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if stream:
                op_output.set_cuda_stream(context.allocate_cuda_stream("mine"), "video")
            op_output.emit(data, "video")

        last = Step(app, CountCondition(app, 1), outputs=("video", "audio"), body=send, name="camera")
        for name, entry in (relays or {}).items():
            relay = Step(
                app,
                inputs=("in",),
                outputs=("out",),
                body=lambda self, i, o, c, entry=entry: o.emit({entry: next(iter(i.receive("in").values()))}),
                name=name,
            )
            app.add_flow(last, relay, {("video" if last.name == "camera" else "out", "in")})
            last = relay
        show = Step(
            app, inputs=("in",), body=lambda self, i, o, c: take and take(i.receive("in")), name="show"
        )
        app.add_flow(last, show, {("video" if last.name == "camera" else "out", "in")})

    run(compose)


def test_an_error_that_is_none_of_ours_keeps_its_type_and_is_noted() -> None:
    class Lost:
        place = 7
        stream = 7

        def order(self, stream: int) -> None:
            raise RuntimeError("the device is gone")

    tensor = as_tensor(Library(CUDA))._with_pending_work(Lost())
    with pytest.raises(RuntimeError, match="^the device is gone") as caught:
        sending({"frame": tensor}, stream=True)
    assert caught.value.__notes__[:2] == [
        "raised while 'frame' was converted to a tensor",
        "raised while emitting at output 'video' of operator 'camera'",
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_exported_is_named_where_it_is_received(stream: bool) -> None:
    heard: list[str] = []

    def take(message: dict[str, Tensor]) -> None:
        for tensor in message.values():
            with pytest.raises(BufferError) as caught:
                tensor.__dlpack__()
            heard.append(str(caught.value))

    fixed = np.frombuffer(bytes(8), np.int32)
    sending(TensorMap(flipped=np.arange(4.0)[::-1], fixed=fixed), take, stream=stream)
    flipped, read_only = heard
    assert flipped.startswith(
        "operator 'camera', output 'video': 'flipped': Tensor(shape=(4,), dtype=float64, device=cpu, "
        "strides=(-8,), of numpy.ndarray) cannot be exported through DLPack: it has a negative stride"
    )
    assert "numpy.ascontiguousarray(array) or array.copy()" in flipped
    assert read_only.startswith(
        "operator 'camera', output 'video': 'fixed': Tensor(shape=(2,), dtype=int32, device=cpu, read-only, of "
        "numpy.ndarray) cannot be exported through DLPack: it is read-only"
    )


def test_the_last_that_sent_it_is_named_and_the_first_ones_message_is_left_alone() -> None:
    array = np.arange(4.0)[::-1]
    tensor = as_tensor(array)
    heard: list[str] = []

    def take(message: dict[str, Tensor]) -> None:
        with pytest.raises(BufferError) as caught:
            message["mirrored"].__dlpack__()
        heard.append(str(caught.value).partition(": Tensor")[0])

    sending({"raw": tensor}, take, relays={"crop": "cropped", "mirror": "mirrored"})
    assert heard == ["operator 'mirror', output 'out': 'mirrored'"]
    with pytest.raises(BufferError, match="^operator 'camera', output 'video': 'raw': "):
        tensor.__dlpack__()
    with pytest.raises(BufferError, match="^Tensor"):
        as_tensor(array).__dlpack__()


def test_an_error_of_the_owner_is_noted() -> None:
    class Tired(Library):
        def __dlpack__(self, **asked: Any) -> Any:
            if self.asked:
                raise BufferError("not again")
            return super().__dlpack__(**asked)

    def take(message: dict[str, Tensor]) -> None:
        for asked in ({}, {"copy": False}):
            with pytest.raises(BufferError, match="^not again") as caught:
                message["frame"].__dlpack__(**asked)
            [note] = caught.value.__notes__
            assert note.startswith(
                "raised while exporting operator 'camera', output 'video': 'frame': Tensor("
            )

    sending(TensorMap(frame=Tired(ROCM)), take)


def test_what_numpy_or_opencv_cannot_take_is_named() -> None:
    def take(message: dict[str, Tensor]) -> None:
        with pytest.raises(
            TypeError, match="^operator 'camera', output 'video': 'frame': NumPy cannot take it: a t"
        ):
            np.asarray(message["frame"])
        pytest.importorskip("cv2")
        with pytest.raises(
            TensorError, match="^operator 'camera', output 'video': 'frame': a tensor of shape"
        ):
            tensor_to_gpumat(message["frame"])

    sending({"frame": as_tensor(Library(CUDA, shape=(5,)))}, take)
