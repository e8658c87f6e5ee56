"""The distribution headrace-holoscan; its package is in `src`."""
