"""The conversation of the job manager with plugins: questions, answers and operations."""
