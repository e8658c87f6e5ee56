"""Which operator runs next, and on which thread."""
