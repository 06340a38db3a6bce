"""RFC 32, Start Request: an execution service may raise an exception on a job; `note` is optional.

An execution service raises one without a note, and then releases the job.

    flux start flux python tests/real/departures/exception-without-note.py
"""

import subprocess
import sys

import flux
from flux.constants import FLUX_MSGTYPE_REQUEST
from flux.job import JobspecV1, submit

NAME = "other-exec"
RAISED = {"severity": 0, "type": "exec"}  # no note
RELEASED = {"ranks": "0", "final": True}
WAIT_S = 1.0


def main() -> int:
    handle = flux.Flux()
    subprocess.run(["flux", "module", "remove", "job-exec"], check=True)
    handle.rpc("service.add", {"service": NAME}).get()

    def start(_handle, _type, message, jobid):
        for kind, data in (("exception", RAISED), ("release", RELEASED)):
            handle.respond(message, {"id": jobid, "type": kind, "data": data})
        handle.reactor_stop()

    handle.rpc("job-manager.exec-hello", {"service": NAME}).get()
    jobid = submit(handle, JobspecV1.from_command(["true"]))
    watcher = handle.msg_watcher_create(
        start, FLUX_MSGTYPE_REQUEST, f"{NAME}.start", args=int(jobid)
    )
    watcher.start()
    handle.reactor_run()
    watcher.stop()
    timer = handle.timer_watcher_create(WAIT_S, lambda *_: handle.reactor_stop())
    timer.start()
    handle.reactor_run()
    words = ["flux", "job", "eventlog", str(jobid)]
    told = subprocess.run(words, check=True, text=True, capture_output=True).stdout.splitlines()
    found = [line.partition(" ")[2] for line in told if " exception " in line]
    print("expected: exception type=exec severity=0, with an empty note")
    print("got:     ", found[0] if found else f"no exception in {len(told)} events")
    handle.rpc("service.remove", {"service": NAME}).get()
    return int(not found)


if __name__ == "__main__":
    sys.exit(main())
