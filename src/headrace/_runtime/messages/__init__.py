"""Messages between operators, the queues they wait in, and the contexts of ``compute``."""
