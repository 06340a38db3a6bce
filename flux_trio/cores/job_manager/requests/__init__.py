"""What users ask of the job manager: submit, exceptions, updates, memos, waits."""
