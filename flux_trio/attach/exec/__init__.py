"""Our execution service for a live flux-core.

The service is the one of an instance (`services.exec`) with its core and its shell host. It knows
nothing of flux-core. A `Bridge` stands between it and the broker, and gives each of them messages
in the shapes that it knows. RFC 32 passes as it is, and so does what a job leaves for others to
read: its guest namespace (`cores.exec.guest`).
"""
