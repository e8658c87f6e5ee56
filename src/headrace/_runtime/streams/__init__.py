"""The streams of an operator, the order between them, and the objects that must stay alive meanwhile."""
