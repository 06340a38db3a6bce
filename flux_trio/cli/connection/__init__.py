"""A command's connections: to its instance, and from a browser or a collector of metrics."""
