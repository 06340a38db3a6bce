"""The commands for those who look after an instance, and after its state directory."""
