"""The conversation with the execution service (RFC 32)."""
