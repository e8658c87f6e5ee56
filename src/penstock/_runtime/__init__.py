"""What runs a program: messages, queues, readiness, and the objects handed to `compute`."""
