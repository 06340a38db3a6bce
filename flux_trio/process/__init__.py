"""Lines that never delay a process, its garbage collector, and commands of the operator."""
