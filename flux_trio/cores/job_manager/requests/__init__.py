"""Requests of users: submit, exceptions, updates, memos, waits."""
