"""Drawings of a graph: as text, boxes, SVG, Mermaid or DOT."""

from __future__ import annotations

from headrace.drawing.text import draw

__all__ = ["draw"]
