"""The commands that run an instance in the foreground."""
