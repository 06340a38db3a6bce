"""Views: what a trace has shown of something so far, folded once for all rules that read it."""
