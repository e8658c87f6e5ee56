"""The package `holoscan` of versions 2 to 4, for programs that import it: the layer of headrace for them."""

import sys

import headrace_holoscan
from headrace_holoscan.alias import install

# The import system returns what stands here: from now on, `holoscan` is the layer itself, and so are its modules.
sys.modules[__name__] = headrace_holoscan
install()
