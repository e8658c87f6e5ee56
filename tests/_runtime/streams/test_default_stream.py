"""A stream as the object of each library, from stand-ins of those that are not installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import gpu
from penstock._runtime.streams.default_stream import DEFAULT_STREAM, default_handle
from penstock.gpu import sim


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(name: str, **attributes: Any) -> None:
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**attributes))

    stand_in(
        "cupy",
        cuda=SimpleNamespace(
            Stream=SimpleNamespace(from_external=lambda stream: ("cupy", int(stream)), null="cupy's default")
        ),
    )
    stand_in(
        "torch",
        cuda=SimpleNamespace(
            ExternalStream=lambda stream, device: ("torch", int(stream), *([device] if device else [])),
            default_stream=lambda device=0: f"torch's default{f' of {device}' if device else ''}",
        ),
    )
    stand_in(
        "numba",
        cuda=SimpleNamespace(
            external_stream=lambda address: ("numba", address), default_stream=lambda: "numba's default"
        ),
    )
    stand_in(
        "cvcuda",
        as_stream=lambda address: ("cvcuda", address),
        Stream=SimpleNamespace(default="cvcuda's default"),
    )


LIBRARIES = ["cupy", "torch", "numba", "cvcuda"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.usefixtures("libraries")
def test_a_handle_gives_the_librarys_own_object_once(library: str) -> None:
    with sim.Machine("h200"):
        device = sim.Device(0)
        device.set_current()
        handle = gpu.StreamHandle(device.create_stream())
        found = getattr(handle, library)()
        assert found == (library, int(handle))
        assert getattr(handle, library)() is found


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.usefixtures("libraries")
def test_the_default_stream_is_the_librarys_default(library: str) -> None:
    assert getattr(DEFAULT_STREAM, library)() == f"{library}'s default"


@pytest.mark.usefixtures("libraries")
def test_pytorch_is_told_the_device_of_a_stream() -> None:
    with sim.Machine("h200", devices=2):
        sim.Device(1).set_current()
        handle = gpu.StreamHandle(sim.Device(1).create_stream())
        sim.Device(0).set_current()
        assert handle.torch() == ("torch", int(handle), 1)
    assert default_handle(1).torch() == "torch's default of 1"


def test_a_default_stream_says_whose_it_is() -> None:
    assert repr(DEFAULT_STREAM) == "StreamHandle(default)"
    assert repr(default_handle(1)) == "StreamHandle(default of device 1)"
