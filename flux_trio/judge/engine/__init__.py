"""The engine of the rules: it passes records to rules and views, and keeps the verdicts."""
