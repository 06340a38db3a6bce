"""What runs rules: records to rules and views, verdicts."""
