"""The methods of a service: which function takes a request, and who may ask. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from flux_trio.formats import FormatError
from flux_trio.messages import (
    Errno,
    FluxError,
    Request,
    Response,
    respond_error,
    service_of,
    unknown_method,
)

Method: TypeAlias = Callable[[Request], None]

OWNER_ONLY: Final = "Request requires owner credentials"  # flux-core's words


class Methods:
    """Functions by topic: those for the instance owner alone, and those for everybody.

    A function answers when it can; what it raises as FluxError or FormatError is the answer.
    """

    def __init__(self, for_owner: Mapping[str, Method], for_all: Mapping[str, Method]) -> None:
        self._for_owner = for_owner
        self._for_all = for_all

    def call(self, request: Request) -> Response | None:
        """Hand `request` over; the error response when that failed, if one is wanted."""
        try:
            self._find(request)(request)
        except FluxError as error:
            return respond_error(request, error.errnum, error.text)
        except FormatError as error:
            return respond_error(request, Errno.EPROTO, f"{request.topic}: {error}")
        return None

    def _find(self, request: Request) -> Method:
        topic = request.topic
        if (method := self._for_all.get(topic)) is not None:
            return method
        if not request.is_owner:
            raise FluxError(Errno.EPERM, OWNER_ONLY)
        if (method := self._for_owner.get(topic)) is not None:
            return method
        service = service_of(topic)
        name = topic.removeprefix(f"{service}.")
        raise unknown_method(service, name)
