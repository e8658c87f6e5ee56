"""How a missing library is installed: the one place that knows, for every error that tells it.

headrace is not on a package index yet. An error that said ``pip install 'headrace[view]'`` would send people to
whoever takes the name there first, so extras are installed from a checkout.
"""

from __future__ import annotations


def installing(*extras: str) -> str:
    """Return the command that installs extras, for the end of an error message."""
    return f"pip install '.[{','.join(extras)}]' in a checkout of headrace"
