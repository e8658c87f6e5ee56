"""Packages with the names of other systems, for programs that were written for them."""
