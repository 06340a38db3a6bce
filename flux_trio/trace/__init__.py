"""The trace: one ordered record of what an instance did.

Every message sent and received (each with its own place, so that what crossed can be told from what
came after), every module started or lost, every event logged, resource change, hook call and state
summary goes through one `Trace`. Sinks decide what is kept; without one nothing is. Times come in
with the records: two runs from one seed give the same bytes. `JsonLines` writes a trace,
`read_trace` reads it back, and reads what other implementations leave.
"""

from flux_trio.trace.reading import Shown, Source, read_trace
from flux_trio.trace.record import (
    Kind,
    Record,
    Sink,
    Trace,
    record_from_json,
    record_to_json,
)
from flux_trio.trace.writing import JsonLines

__all__ = [
    "JsonLines",
    "Kind",
    "Record",
    "Shown",
    "Sink",
    "Source",
    "Trace",
    "read_trace",
    "record_from_json",
    "record_to_json",
]
