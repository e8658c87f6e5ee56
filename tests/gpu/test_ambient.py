"""The current stream of CuPy and PyTorch, shown with stand-ins for both; tests/gpu has the libraries themselves."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import gpu
from headrace.gpu.ambient import remember_stream
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
