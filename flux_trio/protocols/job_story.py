"""The last events of many eventlogs together, so that an error can tell what came before.

A job keeps no list of its events: a pending job takes about 1 kB, and there may be a million of
them. A core that applies events as they happen keeps one story for all jobs. For one job the story
has those of its events that are among the last events of all jobs.
"""

from __future__ import annotations

from collections import deque
from typing import Annotated

from flux_trio.editions.rfc21 import JobEvent
from flux_trio.formats import Event
from flux_trio.formats.meanings import JobId, Meaning
from flux_trio.protocols.job import Job
from flux_trio.protocols.table import STORY_MAX, InvalidTransition


class JobStory:
    """Applies events to jobs, and keeps the names of the last ones for an error's text."""

    names: Annotated[deque[tuple[JobId, str]], Meaning.FOR_PEOPLE]

    def __init__(self) -> None:
        self.names = deque(maxlen=STORY_MAX)

    def begin(self, job: Job) -> None:
        """Take a job that has its first event alone."""
        self.names.append((job.id, JobEvent.SUBMIT))

    def apply(self, job: Job, event: Event) -> None:
        """Apply one event to `job`; InvalidTransition names the last events of the job."""
        try:
            job.apply(event)
        except InvalidTransition as error:
            raise error.with_story(
                story=[name for its, name in self.names if its == job.id]
            ) from None
        self.names.append((job.id, event.name))
