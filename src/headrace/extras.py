"""How a missing library is installed: the one place that knows, for every error that tells it.

headrace is not on a package index yet. Where it is installed, pip takes the extra from what is there and never
looks for the name; in a checkout the name would lead to whoever has it on an index.
"""

from __future__ import annotations

from headrace.bundled import in_checkout


def installing(*extras: str) -> str:
    """Return the command that installs extras, for the end of an error message."""
    wanted = f"[{','.join(extras)}]"
    return (
        f"pip install '.{wanted}' in a checkout of headrace"
        if in_checkout()
        else f"pip install 'headrace{wanted}'"
    )
