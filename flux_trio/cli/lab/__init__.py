"""The commands that play worlds with faults, and simulate machines."""
