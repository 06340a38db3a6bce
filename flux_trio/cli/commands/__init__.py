"""The commands: one file for each, imported when the command is run. Click, and little else."""
