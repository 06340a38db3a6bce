#!/bin/sh
# RFC 20: the R of an allocation has the number of slots, execution.nslots.
#     flux start tests/real/departures/fluxion/no-nslots.sh
. "$(dirname "$0")/loaded.sh"

jobid=$(flux submit true)
flux job wait-event --timeout=30 "$jobid" clean >/dev/null
said 'an R with "nslots"' '"nslots"' "$(flux job info "$jobid" R)"
exit $status
