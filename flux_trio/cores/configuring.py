"""The <service>.config-reload request: {"config": the whole configuration as one object}.

The answer is empty when the service goes by it from now on, and {"refusal": why} when it does not.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.config import Config, read_config
from flux_trio.formats import FormatError
from flux_trio.messages import Errno, FluxError, Request, expect_payload


class ConfigReload(msgspec.Struct):
    """<service>.config-reload."""

    config: dict[str, Any]


def configuration_in(request: Request) -> Config:
    """The new configuration; FluxError(EINVAL) with the path of the field that cannot be read."""
    try:
        return read_config(expect_payload(request, ConfigReload).config)
    except FormatError as error:
        raise FluxError(Errno.EINVAL, str(error)) from None
