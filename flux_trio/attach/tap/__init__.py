"""A tap between flux-core's broker and one of its modules: it records, and it breaks on purpose.

`rules` are what it is told, `core` decides what becomes of each message, `account` records, and
`tapping` is the process.
"""
