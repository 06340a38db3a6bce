"""The commands about jobs that were submitted."""
