"""The questions of the job manager to plugins, and how a job is presented to them."""
