"""Recordings as the SDK's recorder writes them, ``.gxf_index`` and ``.gxf_entities``: reading and writing them."""

from __future__ import annotations

from headrace_holoscan.recordings.clips import open_clip
from headrace_holoscan.recordings.entities import EntityReader, EntityWriter
from headrace_holoscan.recordings.entity_format import Entity

__all__ = ["Entity", "EntityReader", "EntityWriter", "open_clip"]
