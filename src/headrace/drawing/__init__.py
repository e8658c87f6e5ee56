"""Drawings of a graph: as text, SVG, Mermaid or DOT."""

from __future__ import annotations

from headrace.drawing.text import draw

__all__ = ["draw"]
