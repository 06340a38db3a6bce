#!/bin/sh
# RFC 32, Start Request: ranks of a release response is an idset (RFC 22).
#     flux start tests/real/departures/release-names-all-ranks.sh
. "$(dirname "$0")/said.sh"

jobid=$(flux submit true)
flux job wait-event --timeout=30 "$jobid" clean >/dev/null
event=$(flux job eventlog --format=json "$jobid" | grep '"name":"release"')
said 'a release whose ranks are an idset, such as "0"' '"ranks":"[0-9]' "$event"
exit $status
