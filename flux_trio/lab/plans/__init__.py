"""Plans: jobs, requests of their owner, and faults; how they are drawn from a seed."""
