"""What the users of all commands type and read; completion and manual pages."""
