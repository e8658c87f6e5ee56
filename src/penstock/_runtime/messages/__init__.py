"""What passes between operators: messages, the queues they wait in, what ``compute`` is handed."""
