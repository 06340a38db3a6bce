"""Where the code of a core has raised, for the one who is to mend it."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

import flux_trio

_PACKAGE: Final = Path(flux_trio.__file__).parent
_LIBRARIES: Final = tuple(
    Path(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib")
)


def raised_at(error: BaseException) -> str:
    """Return " (file:line)" of what the caller's `try` has called; "" if that is not known.

    Lines of libraries are passed over: an enum of Python raises in a line that nobody wants to
    mend.
    """
    place = ""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next  # the first one is the caller's
        path = Path(trace.tb_frame.f_code.co_filename)
        if path.is_relative_to(_PACKAGE):
            place = f" ({path.relative_to(_PACKAGE.parent)}:{trace.tb_lineno})"
        elif not any(map(path.is_relative_to, _LIBRARIES)) and path.is_absolute():
            place = f" ({path}:{trace.tb_lineno})"
    return place
