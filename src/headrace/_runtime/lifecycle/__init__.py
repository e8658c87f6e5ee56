"""A run, from composing to its outcome."""
