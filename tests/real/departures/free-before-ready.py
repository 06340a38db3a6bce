"""RFC 27: resources that a job has held are freed with sched.free, also if they come back while a
scheduler is about to be ready.

A job is in housekeeping when a scheduler says hello, which tells of it. Housekeeping ends, and then
the scheduler is ready.

    flux start flux python tests/real/departures/free-before-ready.py
"""

import json
import subprocess
import sys
import time

import flux
from flux.constants import FLUX_MSGTYPE_REQUEST

HOUSEKEEPING_S = 2
CONFIG = {"job-manager": {"housekeeping": {"command": ["sleep", str(HOUSEKEEPING_S)]}}}


def command(*words, **given):
    return subprocess.run(["flux", *words], check=True, text=True, **given)


def main() -> int:
    handle = flux.Flux()
    handle.rpc("config.load", CONFIG).get()
    command("run", "true")
    command("module", "remove", "sched-simple")
    handle.rpc("service.add", {"service": "sched"}).get()
    frees = []
    watcher = handle.msg_watcher_create(
        lambda _handle, _type, message, _args: frees.append(json.loads(message.payload_str)),
        FLUX_MSGTYPE_REQUEST,
        "sched.free",
    )
    watcher.start()
    told = []
    hello = handle.rpc("job-manager.sched-hello", {"partial-ok": True}, flags=2)
    while True:
        try:
            told.append(hello.get()["id"])
        except OSError:  # ENODATA, the end
            break
        hello.reset()
    time.sleep(HOUSEKEEPING_S + 1)
    handle.rpc("job-manager.sched-ready", {"mode": "unlimited"}).get()
    timer = handle.timer_watcher_create(1.0, lambda *_: handle.reactor_stop())
    timer.start()
    handle.reactor_run()
    print(f"expected: a sched.free of each of {len(told)} jobs that hello has told of")
    print(f"got:      {len(frees)} sched.free")
    watcher.stop()
    handle.rpc("service.remove", {"service": "sched"}).get()
    command("module", "load", "sched-simple")
    return int(len(frees) < len(told))


if __name__ == "__main__":
    sys.exit(main())
