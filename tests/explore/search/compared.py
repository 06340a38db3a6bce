"""What the rules compare in the worlds that come with flux-trio, as searches have learned it.

A search begins with this, and so it seldom has to begin again. Nothing depends on it otherwise: a
search learns what is not here, and an entry that no rule needs any more only keeps an order that
decides nothing.
"""

from __future__ import annotations

from typing import Final

COMPARED: Final[dict[tuple[str, str], str]] = {
    ("acquired, as received sched", "link sched>resource"): "same",
    ("annotations", "link.lost"): "all",
    ("answered job-ingest", "asked job-ingest"): "all",
    ("answered job-manager", "asked job-manager"): "all",
    ("answered job-manager", "durable.commits job-manager"): "same",
    ("asked", "asked"): "all",
    ("asked", "link.lost"): "all",
    ("asked", "newest answered"): "all",
    ("asked job-ingest", "asked job-ingest"): "all",
    ("asked job-ingest", "open calls"): "all",
    ("asked job-manager", "asked job-manager"): "all",
    ("began job-manager", "durable.commits job-manager"): "same",
    ("durable.answered job-manager", "durable.answered job-manager"): "same",
    ("durable.answered job-manager", "durable.commits job-manager"): "same",
    ("durable.answered job-manager", "durable.until job-manager"): "same",
    ("durable.answered sched", "durable.answered sched"): "same",
    ("durable.answered sched", "durable.commits sched"): "same",
    ("durable.answered sched", "durable.until sched"): "same",
    ("durable.commits job-manager", "durable.commits job-manager"): "same",
    ("durable.commits job-manager", "durable.until job-manager"): "same",
    ("durable.commits job-manager", "life"): "all",
    ("durable.commits job-manager", "queues.stopped"): "same",
    ("durable.commits sched", "durable.commits sched"): "same",
    ("durable.commits sched", "durable.until sched"): "same",
    ("durable.sample job-manager", "life"): "all",
    ("durable.known_at job-manager", "life"): "all",
    ("durable.until job-manager", "life"): "all",
    ("exec link.accepted", "exec link.lost"): "same",
    ("exec link.disconnected", "starts"): "all",
    ("exec link.lost", "starts"): "all",
    ("first ready", "valid ready"): "all",
    ("grants", "link.hello_sent"): "all",
    ("jobs of the scheduler", "link.hello_sent"): "all",
    ("life", "life"): "same",
    ("life", "queues.n"): "all",
    ("link job-exec>job-manager", "link job-exec>job-manager"): "same",
    ("link job-exec>job-manager", "order job-exec.*>job-manager"): "same",
    ("link job-exec>job-manager", "order job-exec>job-manager"): "same",
    ("link job-exec>resource", "link job-exec>resource"): "same",
    ("link job-exec>resource", "order job-exec>resource"): "same",
    ("link job-ingest>job-manager", "link job-ingest>job-manager"): "same",
    ("link job-ingest>job-manager", "order job-ingest>job-manager"): "same",
    ("link job-manager>job-exec", "link job-manager>job-exec"): "same",
    ("link job-manager>job-exec", "order job-manager.*>job-exec"): "same",
    ("link job-manager>job-exec", "order job-manager>job-exec"): "same",
    ("link job-manager>resource", "order job-manager>resource"): "same",
    ("link job-manager>sched", "link job-manager>sched"): "same",
    ("link job-manager>sched", "link.hello"): "same",
    ("link job-manager>sched", "order job-manager.*>sched"): "same",
    ("link job-manager>sched", "order job-manager>sched"): "same",
    ("link kvs>job-exec", "order kvs.*>job-exec"): "same",
    ("link kvs>job-manager", "link kvs>job-manager"): "same",
    ("link kvs>job-manager", "order kvs.*>job-manager"): "same",
    ("link kvs>sched", "link kvs>sched"): "same",
    ("link kvs>sched", "order kvs.*>sched"): "same",
    ("link resource>job-manager", "order resource.*>job-manager"): "same",
    ("link sched>job-manager", "link sched>job-manager"): "same",
    ("link sched>job-manager", "order sched.*>job-manager"): "same",
    ("link sched>job-manager", "order sched>job-manager"): "same",
    ("link sched>resource", "link sched>resource"): "same",
    ("link sched>resource", "order sched>resource"): "same",
    ("link user1>job-manager", "link user1>job-manager"): "same",
    ("link user1>job-manager", "order user1>job-manager"): "same",
    ("link.answered", "link.hello"): "same",
    ("link.answered", "link.lost"): "same",
    ("link.fatal", "link.lost"): "same",
    ("link.gone", "link.hello"): "same",
    ("link.gone", "link.hello_ended"): "same",
    ("link.gone", "link.hello_sent"): "same",
    ("link.hello_done", "link.hello_sent"): "same",
    ("link.hello_done", "link.ready_sent"): "same",
    ("link.hello", "link.hello_ended"): "same",
    ("link.hello", "link.hello_sent"): "same",
    ("link.hello", "link.lost"): "same",
    ("link.hello_sent", "link.ready_sent"): "same",
}
"""By the names of two spots (fields in the states of views): whether rules compare the records that
stand there always (ALL), or if they stand under the same key (SAME); see `order`."""

READ: Final = (
    "answers job-ingest",
    "answers job-manager",
    "answers kvs",
    "answers resource",
    "turn job-manager",
)
"""What rules read of the messages that the parties have surely handled; see `settling`."""
