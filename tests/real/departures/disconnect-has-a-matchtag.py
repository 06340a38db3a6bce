#!/usr/bin/env python3
"""RFC 6: a request that wants no response has matchtag 0; a disconnect is such a request.

flux start flux python tests/real/departures/disconnect-has-a-matchtag.py
"""

import subprocess
import sys

import flux
from flux.core.inner import ffi, raw

SERVICE = "departure"
CLIENT = f"import flux; flux.Flux().rpc('{SERVICE}.anything').get()"


def matchtag_of(message):
    found = ffi.new("uint32_t *")
    raw.flux_msg_get_matchtag(message.handle, found)
    return found[0]


def main():
    """Serve a client, which is killed while it waits for the answer."""
    server, matchtags = flux.Flux(), []
    server.service_register(SERVICE).get()
    client = subprocess.Popen([sys.executable, "-c", CLIENT])

    def receive(handle, _watcher, message, _arg):
        if message.topic != f"{SERVICE}.disconnect":
            client.kill()
        else:
            matchtags.append(matchtag_of(message))
            handle.reactor_stop()

    with server.msg_watcher_create(receive, topic_glob=f"{SERVICE}.*"):
        server.reactor_run()
    client.wait()
    print(f"expected: {SERVICE}.disconnect with matchtag 0")
    print(f"got:      matchtag {matchtags[0]}")
    return int(matchtags[0] != 0)


if __name__ == "__main__":
    sys.exit(main())
