"""A command's connection to its instance, and what several commands ask there."""
