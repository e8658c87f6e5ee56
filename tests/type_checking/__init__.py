"""Programs for a type checker. Not named `typing`: the tests folder is on the path before the standard library."""
