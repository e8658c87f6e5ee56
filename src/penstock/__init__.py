"""penstock: streaming GPU pipelines in Python.

Importing this package imports no CUDA library; the device is chosen when it is first asked for
(see :mod:`penstock.gpu`).
"""

from penstock._version import __version__

__all__ = ["__version__"]
