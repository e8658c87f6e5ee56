"""HTML for notebooks: tables, pictures and pages, as ``_repr_html_`` of our objects returns them.

Pictures are embedded as data, not as elements: the style of an SVG would apply to the whole notebook.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape


def table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; the first column is aligned to the left, and all others to the right."""
    lines = [_row("th", header), *(_row("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[object]) -> str:
    texts = [
        f'<{tag} style="text-align:{"right" if at else "left"}">{escape(str(cell))}</{tag}>'
        for at, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(texts)}</tr>"


def paragraph(text: str) -> str:
    """Return a line of text."""
    return f"<p>{escape(text)}</p>"


def preformatted(text: str) -> str:
    """Return text whose spaces and line ends are kept."""
    return f"<pre>{escape(text)}</pre>"


def picture(data: bytes, kind: str, description: str) -> str:
    """Return an image; `kind` is its media type, as in ``"image/png"``."""
    source = f"data:{kind};base64,{b64encode(data).decode()}"
    return f'<img src="{source}" alt="{escape(description)}" style="max-width:100%">'


def page(url: str, width: int, height: int) -> str:
    """Return a frame that shows a page."""
    size = f'width="{width}" height="{height}"'
    return f'<iframe src="{escape(url)}" {size} style="border:0;max-width:100%"></iframe>'
