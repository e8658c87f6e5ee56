"""What holds while frames are recorded."""

from __future__ import annotations

import gc

from headrace.capture.recording import _without_collection


def test_no_garbage_is_collected_before_the_last_of_several_recordings_has_ended() -> None:
    first, second = _without_collection(), _without_collection()
    assert gc.isenabled()
    with second:
        with first:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    first, second = _without_collection(), _without_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()
