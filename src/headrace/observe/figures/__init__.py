"""Figures of a run: statistics, latencies of paths, goals, and where the time of messages went."""
