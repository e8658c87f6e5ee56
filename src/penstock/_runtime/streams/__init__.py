"""The streams of an operator, the order between them, and what must stay alive meanwhile."""
