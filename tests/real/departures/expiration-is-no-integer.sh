#!/bin/sh
# RFC 27, Expiration, and RFC 21, resource-update: the expiration is an integer.
#     flux start tests/real/departures/expiration-is-no-integer.sh
. "$(dirname "$0")/said.sh"

trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
begin_trace "$trace" --full job-manager sched-simple
jobid=$(flux submit sleep inf)
flux job wait-event --timeout=30 "$jobid" start >/dev/null
flux update "$jobid" duration=60
event=$(flux job eventlog --format=json "$jobid" | grep '"name":"resource-update"')
flux cancel "$jobid"
flux job wait-event --timeout=30 "$jobid" clean >/dev/null
kill $tracer
request=$(grep -A 4 'tx > sched.expiration' "$trace" | grep '"expiration"')
said 'a sched.expiration request with an integer' '"expiration": [0-9]+[^.0-9]*$' "$request"
said 'a resource-update event with an integer' '"expiration":[0-9]+[^.0-9]*$' "$event"
exit $status
