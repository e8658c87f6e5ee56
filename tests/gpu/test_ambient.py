"""The current stream of CuPy and PyTorch, shown with stand-ins for both; tests/gpu has the libraries themselves."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import gpu
from headrace.gpu.current import remember_stream
from headrace.gpu.lasting_stream import Current, LastingStream
from tests.harness.libraries import stand_in


class Foreign:
    """A stream of no device that headrace knows."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 77)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each library has as its current stream, by name."""
    streams: dict[str, Any] = {"cupy": "before", "torch": "before"}

    class CupyStream:
        def __init__(self, of: Any) -> None:
            self.of = of

        def use(self) -> None:
            streams["cupy"] = self.of

        from_external = classmethod(lambda cls, handle: cls(int(handle)))

    stand_in(
        monkeypatch,
        "cupy",
        cuda=SimpleNamespace(Stream=CupyStream, get_current_stream=lambda: CupyStream(streams["cupy"])),
    )
    stand_in(
        monkeypatch,
        "torch",
        Tensor=SimpleNamespace(untyped_storage=None),
        cuda=SimpleNamespace(
            ExternalStream=lambda handle: SimpleNamespace(
                stream_id=int(handle), device_index=0, device_type=1
            ),
            is_available=lambda: True,
            current_stream=None,
        ),
        _C=SimpleNamespace(
            _cuda_getDevice=lambda: 0,
            _cuda_getCurrentStream=lambda device: (streams["torch"], device, 1),
            _cuda_setStream=lambda stream_id, device_index, device_type: streams.update(torch=stream_id),
        ),
    )
    return streams


def test_both_libraries_are_on_the_stream_inside_and_back_afterwards(current: dict[str, Any]) -> None:
    ambient = gpu.use_stream(Foreign())
    for _ in range(2):
        with ambient as handle:
            assert current == {"cupy": 77, "torch": 77}
            assert gpu.current_stream() is handle
        assert current == {"cupy": "before", "torch": "before"}
        assert gpu.current_stream() is None


def test_a_current_stream_can_be_entered_inside_itself(current: dict[str, Any]) -> None:
    ambient = gpu.use_stream(Foreign())
    with ambient:
        with ambient:
            assert current["cupy"] == 77
        assert current["cupy"] == 77
    assert current == {"cupy": "before", "torch": "before"}


def test_a_library_that_fails_leaves_nothing_changed(
    current: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(stream: Any) -> Any:
        raise RuntimeError("no such device")

    monkeypatch.setattr(sys.modules["torch"].cuda, "ExternalStream", fail)
    with pytest.raises(RuntimeError, match="no such device"), gpu.use_stream(Foreign()):
        pass
    assert current == {"cupy": "before", "torch": "before"}
    assert gpu.current_stream() is None


def test_blocks_that_were_never_left_are_undone(current: dict[str, Any]) -> None:
    with gpu.use_stream(Foreign()) as outside:
        restore = remember_stream()
        again = gpu.use_stream(Foreign())
        again.__enter__()
        again.__enter__()
        gpu.use_stream(Foreign()).__enter__()
        assert gpu.current_stream() is not outside
        restore()
        assert gpu.current_stream() is outside
        assert current == {"cupy": 77, "torch": 77}
        restore()
        assert gpu.current_stream() is outside
    assert current == {"cupy": "before", "torch": "before"}
    assert gpu.current_stream() is None


@pytest.mark.parametrize("devices", [1, 2])
def test_a_lasting_stream_is_set_in_a_library_only_if_it_has_another(
    monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    """With several devices it is always set: the device may be another one."""
    calls: list[str] = []
    now: dict[str, Any] = {"cupy": None, "torch": 0}

    class CupyStream:
        def use(self) -> None:
            calls.append("cupy")
            now["cupy"] = self

        from_external = classmethod(lambda cls, handle: cls())

    def set_torch(stream_id: int, device_index: int, device_type: int) -> None:
        calls.append("torch")
        now["torch"] = stream_id

    stand_in(
        monkeypatch,
        "cupy",
        cuda=SimpleNamespace(
            Stream=CupyStream,
            get_current_stream=lambda device=-1: now["cupy"],
            runtime=SimpleNamespace(getDeviceCount=lambda: devices),
        ),
    )
    stand_in(
        monkeypatch,
        "torch",
        Tensor=SimpleNamespace(untyped_storage=None),
        cuda=SimpleNamespace(
            ExternalStream=lambda handle: SimpleNamespace(
                stream_id=int(handle), device_index=0, device_type=1
            ),
            is_available=lambda: True,
            current_stream=None,
            device_count=lambda: devices,
        ),
        _C=SimpleNamespace(
            _cuda_getDevice=lambda: 0,
            _cuda_getCurrentStream=lambda device: (now["torch"], device, 1),
            _cuda_getCurrentRawStream=lambda device: now["torch"],
            _cuda_setStream=set_torch,
        ),
    )
    lasting = LastingStream(Foreign())
    lasting.enter(Current())
    assert sorted(calls) == ["cupy", "torch"]
    lasting.make_current()
    assert len(calls) == (2 if devices == 1 else 4)
    calls.clear()
    now["torch"] = 5  # by the program
    lasting.make_current()
    assert sorted(calls) == (["torch"] if devices == 1 else ["cupy", "torch"])
    now["cupy"] = CupyStream()
    lasting.make_current()
    assert (calls[-1], now["torch"]) == ("cupy" if devices == 1 else calls[-1], 77)
