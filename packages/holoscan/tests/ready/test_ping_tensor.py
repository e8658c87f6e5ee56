"""PingTensorTxOp and PingTensorRxOp."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition
from headrace.core import ParameterError
from headrace.gpu import sim
from headrace.resources import CudaStreamPool
from headrace.testing import run_operator
from headrace_holoscan.ready import PingTensorRxOp, PingTensorTxOp
from tests.harness import App, Step, run


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the operators logged."""
    return [record.message for record in caplog.records if record.name.startswith("headrace_holoscan.ready.")]


def test_a_tensor_has_the_shape_and_type_that_were_asked_for() -> None:
    (message,) = run_operator(PingTensorTxOp, steps=1)["out"]
    tensor = message["tensor"]
    assert (tensor.shape, tensor.dtype, str(tensor.device)) == ((32, 64), np.uint8, "cpu")


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("int8_t", np.int8),
        ("uint64_t", np.uint64),
        ("float", np.float32),
        ("double", np.float64),
        ("complex<float>", np.complex64),
        ("complex<double>", np.complex128),
        (np.dtype(np.int16), np.int16),
        ("float16", np.float16),
    ],
)
def test_an_element_type_is_named_as_in_c_or_numpy(dtype: Any, expected: Any) -> None:
    (message,) = run_operator(PingTensorTxOp, steps=1, dtype=dtype)["out"]
    assert message["tensor"].dtype == expected


@pytest.mark.parametrize(
    ("storage", "device"),
    [
        ("system", "cpu"),
        ("host", "cuda_host:0"),
        ("device", "cuda:0"),
        ("cuda_managed", "cuda_managed:0"),
    ],
)
def test_memory_is_of_the_kind_that_was_asked_for(storage: str, device: str, machine: sim.Machine) -> None:
    (message,) = run_operator(PingTensorTxOp, steps=1, storage_type=storage)["out"]
    assert str(message["tensor"].device) == device
    assert message["tensor"].nbytes == 32 * 64


def test_pinned_memory_can_be_read_on_the_host(machine: sim.Machine) -> None:
    (message,) = run_operator(PingTensorTxOp, steps=1, storage_type="host", dtype="float")["out"]
    assert np.asarray(message["tensor"]).shape == (32, 64)


def test_memory_allocated_in_stream_order_carries_the_stream(machine: sim.Machine) -> None:
    streams: list[Any] = []

    def compose(app: App) -> None:
        pool = CudaStreamPool(app)
        source = PingTensorTxOp(
            app,
            CountCondition(app, 2),
            storage_type="device",
            async_device_allocation=True,
            cuda_stream_pool=pool,
        )

        def look(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            streams.extend(op_input.receive_cuda_streams("in"))

        app.add_flow(source, Step(app, inputs=["in"], body=look, name="look"))

    run(compose)
    assert len(streams) == 2
    assert streams[0] is not None
    assert streams[0] == streams[1]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (
            {"storage_type": "gpu"},
            "'storage_type' of .* must be one of 'host', 'device', 'system', 'cuda_man",
        ),
        ({"dtype": "uint7_t"}, "dtype='uint7_t' is not known; it is one of 'int8_t'"),
        ({"dtype": "object"}, "dtype='object' is not known"),
        ({"rows": 0}, "'rows' of .* must be at least 1, not 0"),
        ({"channels": -1}, "'channels' of .* must be at least 0, not -1"),
        ({"async_device_allocation": True}, "needs storage_type='device', not 'system'"),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        run_operator(PingTensorTxOp, steps=1, **params)


def test_the_default_stream_pool_may_be_asked_for() -> None:
    assert len(run_operator(PingTensorTxOp, steps=1, cuda_stream_pool=None)["out"]) == 1


def test_received_tensors_are_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        outcome = run_operator(
            PingTensorRxOp, inputs=[{"a": np.zeros((2, 3)), "b": np.zeros(4)}, np.zeros(1)], name="rx"
        )
    assert messages(caplog) == [
        "rx received message 1: Tensor key: 'a', shape: (2, 3)",
        "rx received message 2: Tensor key: 'b', shape: (4,)",
        "rx received message 3: Tensor key: '', shape: (1,)",
    ]
    assert outcome.operator.count == 3


@pytest.mark.parametrize(
    ("is_asynchronous", "as_map", "kind"),
    [(True, True, "non-default"), (False, True, "non-default"), (True, False, "non-default")],
)
@pytest.mark.usefixtures("machine")
def test_the_stream_of_tensors_on_a_device_is_logged(
    caplog: pytest.LogCaptureFixture, is_asynchronous: bool, as_map: bool, kind: str
) -> None:
    def compose(app: App) -> None:
        sender = PingTensorTxOp(
            app,
            CountCondition(app, 1),
            storage_type="device",
            async_device_allocation=is_asynchronous,
            name="tx",
        )
        app.add_flow(sender, PingTensorRxOp(app, receive_as_tensormap=as_map, name="rx"))

    with caplog.at_level(logging.INFO):
        run(compose)
    assert [text for text in messages(caplog) if text.startswith("rx")] == [
        f"rx received {kind} CUDA stream from port 'in'",
        "rx received message 1: Tensor " + ("key: 'tensor', " if as_map else "") + "shape: (32, 64)",
    ]


def test_something_else_than_a_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="operator 'rx', input 'in': expected an array .*'' is a str"):
        run_operator(PingTensorRxOp, inputs=["text"], name="rx")
