#!/bin/sh
# RFC 21: free comes after the epilogs that have begun have finished.
#     flux start tests/real/departures/epilog-never-finishes.sh
. "$(dirname "$0")/said.sh"

flux config load <<END
[job-manager]
prolog.command = ["false"]
epilog.command = ["true"]
END
flux jobtap load perilog.so
jobid=$(flux submit true)
flux job wait-event --timeout=30 "$jobid" clean >/dev/null
events=$(flux job eventlog --format=json "$jobid" | sed 's/.*"name":"\([^"]*\)".*/\1/' | tr '\n' ' ')
flux jobtap remove perilog.so
said 'epilog-finish after epilog-start, and then free' 'epilog-start.*epilog-finish.*free' "$events"
exit $status
