"""The views: states that are folded from the trace once, for all rules that read them."""
