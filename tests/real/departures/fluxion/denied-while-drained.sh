#!/bin/sh
# RFC 28, Criteria: nodes may go offline and come back; a job that needs them waits meanwhile.
#     flux start -s 2 tests/real/departures/fluxion/denied-while-drained.sh
. "$(dirname "$0")/loaded.sh"

flux resource drain 1
jobid=$(flux submit -N2 true)
sleep 2 # by then it waits, or is denied
state=$(flux jobs -no '{status_abbrev} {exception.note}' "$jobid")
flux cancel "$jobid" 2>/dev/null
said 'a job that waits' '^S' "$state"
exit $status
