"""The commands that judge traces and show them."""
