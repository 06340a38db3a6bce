"""Worlds of cores, or of the whole stack: who is there, what is on its way, and who is next."""
