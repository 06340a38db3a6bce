"""Job ids as the user of a command reads them."""

from __future__ import annotations

from flux_trio.process.console import id_form


def shown_id(jobid: int) -> str:
    """Return a job id in F58, in ASCII where the locale has no ƒ. Raises FormatError."""
    from flux_trio.formats import format_fluid  # a command that fails needs no format

    return format_fluid(jobid, id_form())
