"""The conversation with the scheduler (RFC 27): the queue, grants, priorities."""
