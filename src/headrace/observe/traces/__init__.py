"""Traces of a run: files for Perfetto, and NVTX ranges."""
