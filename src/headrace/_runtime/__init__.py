"""The runtime: runs the programs that core declares. Private to headrace.

Other packages of headrace import only the names listed here; the subpackages (`lifecycle`, `scheduling`,
`messages`, `streams`) import from each other directly. Each name is imported when it is first used, so that `import
headrace` does not pay for the engine and the streams.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
