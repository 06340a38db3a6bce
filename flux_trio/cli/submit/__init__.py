"""The commands that submit jobs, and the jobspecs that their options make."""
