"""The commands, one file each, imported when the command runs; they hold the click code."""
