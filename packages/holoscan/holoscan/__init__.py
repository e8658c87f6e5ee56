"""The package `holoscan` of versions 2 to 4, for programs that import it: the compatibility layer of headrace."""

import sys

from headrace.compat import holoscan
from headrace.compat.holoscan.alias import install

# The import system returns what stands here: from now on, `holoscan` is the layer itself, and so are its modules.
sys.modules[__name__] = holoscan
install()
