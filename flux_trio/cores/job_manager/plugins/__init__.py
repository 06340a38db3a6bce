"""What plugins say: their operations, the answers about a job's state, plugins that come later."""
