"""Segments: operators that are recorded as one CUDA graph and replayed for later frames."""
