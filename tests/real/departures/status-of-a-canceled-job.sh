#!/bin/sh
# RFC 32: the status of finish is the greatest wait status of the job's shells.
#     flux start tests/real/departures/status-of-a-canceled-job.sh
. "$(dirname "$0")/said.sh"

ready=$(mktemp -u)
jobid=$(flux submit sh -c "trap 'exit 0' TERM; touch $ready; while :; do sleep 0.1; done")
while ! [ -e "$ready" ]; do sleep 0.1; done
rm "$ready"
flux cancel "$jobid"
flux job wait-event --timeout=60 "$jobid" clean >/dev/null
event=$(flux job eventlog --format=json "$jobid" | grep '"name":"finish"')
said 'the status 0 of tasks that exit with 0' '"status":0' "$event"
exit $status
