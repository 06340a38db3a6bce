"""RFC 33's queues: which there are, who starts and stops them, who waits for them."""
