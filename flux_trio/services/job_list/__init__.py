"""job-list and job-info: what users read about jobs, followed from the journal, read from the kvs."""
