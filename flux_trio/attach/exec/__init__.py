"""Our execution service for a live flux-core.

The service is the one of an instance (`services.exec`) with its core and its shell host. It knows
nothing of flux-core. A `Bridge` stands between it and the broker, and gives each of them messages
in the shapes that it knows. RFC 32 passes as it is. What a job leaves for others to read is in its
*guest namespace*: a namespace of flux-core's kvs that the bridge makes before the job starts, and
whose content it moves below the job's key before the job's resources are released (RFC 16).
"""
