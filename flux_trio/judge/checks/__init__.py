"""What the content of payloads, jobspecs, R and tables must be, one function a sentence."""
