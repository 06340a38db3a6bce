"""The active jobs and their events: the ledger, restart, the journal, purge."""
