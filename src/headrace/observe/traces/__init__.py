"""Traces of a run: files for Perfetto and their summaries, NVTX ranges, OpenTelemetry spans."""
