"""The instance's log."""

from __future__ import annotations

from flux_trio.broker import LogBook, LogEntry
from flux_trio.broker.log import LOG_RING_SIZE
from flux_trio.messages import Level


def entry(n: int) -> LogEntry:
    return LogEntry(float(n), Level.INFO, "kvs", f"line {n}")


def test_log_keeps_the_last_entries_in_order() -> None:
    log = LogBook()
    for n in range(LOG_RING_SIZE + 3):
        log.write(entry(n))
    kept = list(log)
    assert (len(kept), kept[0], kept[-1]) == (LOG_RING_SIZE, entry(3), entry(LOG_RING_SIZE + 2))


def test_every_sink_gets_every_entry_as_it_comes() -> None:
    log = LogBook()
    first: list[LogEntry] = []
    second: list[LogEntry] = []
    log.sinks.append(first.append)
    log.write(entry(1))
    log.sinks.append(second.append)
    log.write(entry(2))
    assert (first, second) == ([entry(1), entry(2)], [entry(2)])


def test_log_may_be_written_while_it_is_read() -> None:
    log = LogBook()
    log.write(entry(1))
    for each in log:
        log.write(each)
    assert len(list(log)) == 2


def test_entry_reads_as_party_level_and_text() -> None:
    assert str(LogEntry(1.0, Level.CRIT, "sched", "lost")) == "sched.crit: lost"


def test_entry_that_quotes_a_message_is_cut() -> None:
    assert LogEntry(1.0, Level.ERR, "sched", "x" * 100_000).text == "x" * 2**15 + "..."
