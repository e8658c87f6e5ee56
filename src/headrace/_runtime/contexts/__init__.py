"""The contexts of ``compute``: what an operator receives from, emits to, and asks about its run."""
