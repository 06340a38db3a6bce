"""A pipe with data, as a shell makes one for `<(command)`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread


@contextmanager
def piped(data: bytes) -> Iterator[Path]:
    """Yield the name of a pipe from which the data can be read once."""
    source, sink = os.pipe()

    def feed() -> None:
        with suppress(BrokenPipeError), os.fdopen(sink, "wb") as file:
            file.write(data)

    feeder = Thread(target=feed)
    feeder.start()
    try:
        yield Path(f"/dev/fd/{source}")
    finally:
        os.close(source)
        feeder.join()
