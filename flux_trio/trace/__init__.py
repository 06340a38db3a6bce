"""The trace: one ordered record of what an instance did.

One `Trace` gets every message sent and received, every module started or ended, every event logged,
resource change, hook call and state summary. A send and its receipt are separate records with their
own places, so a reader can tell which messages crossed. Sinks store the records; without a sink
nothing is stored. Times come with the records: two runs from the same seed give the same bytes.
`JsonLines` writes a trace; `read_trace` reads it, and also reads traces of other implementations.
"""

from flux_trio.trace.reading import Shown, Source, read_trace, text_lines
from flux_trio.trace.record import (
    KILLED,
    SLEEP,
    Kind,
    Notes,
    Receipts,
    Record,
    Sink,
    Trace,
    TurnSink,
    WithMessage,
    record_from_json,
    record_to_json,
    records_to_json,
)
from flux_trio.trace.routed import BROKER, CLIENT
from flux_trio.trace.writing import Batches, JsonLines

__all__ = [
    "BROKER",
    "CLIENT",
    "KILLED",
    "SLEEP",
    "Batches",
    "JsonLines",
    "Kind",
    "Notes",
    "Receipts",
    "Record",
    "Shown",
    "Sink",
    "Source",
    "Trace",
    "TurnSink",
    "WithMessage",
    "read_trace",
    "record_from_json",
    "record_to_json",
    "records_to_json",
    "text_lines",
]
