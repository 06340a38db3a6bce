"""What a process is to its surroundings: lines that never delay it, files of its user alone,
commands of the operator, and how often the garbage collector works.
"""
