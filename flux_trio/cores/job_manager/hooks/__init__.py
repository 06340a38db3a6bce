"""The conversation with plugins: questions, answers, operations."""
