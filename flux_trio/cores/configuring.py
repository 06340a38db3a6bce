"""The <service>.config-reload request.

The answer is empty if the service has taken the new configuration; otherwise it says why not.
"""

from __future__ import annotations

from flux_trio.config import Config, read_config
from flux_trio.editions import flux
from flux_trio.formats import FormatError
from flux_trio.messages import Errno, FluxError, Request


def configuration_in(request: Request) -> Config:
    """Return the new configuration. FluxError(EINVAL) names the field that cannot be read."""
    try:
        return read_config(flux.CONFIG_RELOAD.read(request).config)
    except FormatError as error:
        raise FluxError(Errno.EINVAL, str(error)) from None
