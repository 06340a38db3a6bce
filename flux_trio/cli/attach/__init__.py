"""The commands that join a live flux-core."""
