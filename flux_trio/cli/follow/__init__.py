"""Jobs are followed: their output, their events, their standard input."""
