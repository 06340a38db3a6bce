#!/bin/sh
# RFC 18: events that are in an eventlog stay as they are; a writer appends to it.
#     flux start tests/real/departures/eventlog-is-rewritten.sh
. "$(dirname "$0")/said.sh"

trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
begin_trace "$trace" --full job-manager resource
flux module remove sched-simple
flux module reload resource
flux module load sched-simple
flux run true
kill $tracer
flags=$(awk '/tx > kvs.commit/ { commit = 1; next }
  /^[^ {}]/ { commit = 0 }
  commit && /"key": "resource.eventlog"/ { key = 1 }
  commit && key && /"flags":/ { print $2; key = 0 }' "$trace" | tr -d ',' | sort -u | tr '\n' ' ')
said 'appends (flags 32) to resource.eventlog' '^flags (32 )?$' "flags $flags"
exit $status
