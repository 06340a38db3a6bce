#!/bin/sh
# RFC 21: in CLEANUP, free comes after the final release of a job that was started.
#     flux start tests/real/departures/free-without-release.sh
. "$(dirname "$0")/said.sh"

jobid=$(flux submit sleep inf)
flux job wait-event --timeout=30 "$jobid" start >/dev/null
flux module remove job-exec
flux cancel "$jobid"
flux job wait-event --timeout=10 "$jobid" clean >/dev/null
events=$(flux job eventlog --format=json "$jobid" | sed 's/.*"name":"\([^"]*\)".*/\1/' | tr '\n' ' ')
flux module load job-exec
flux job wait-event --timeout=30 "$jobid" clean >/dev/null
said 'release before free, or none of both until a service is there' \
  '(release.*free|exception $)' "$events"
exit $status
