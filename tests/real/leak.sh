#!/bin/sh
# A sched.free is lost between job manager and scheduler: the audit of a monitor has to name the node.
# Prints the verdicts as JSON. Usage: flux start -s 2 tests/real/leak.sh TAP MONITOR...
tap=$1
shift
verdicts=$(mktemp)
{
  flux module remove sched-simple
  flux module load --loader="$tap" "$("$tap" --path sched-fifo)" tap-drop=rx,request,sched.free
  "$@" --audit --json "$verdicts" &
  monitor=$!
  sleep 1
  flux run -n1 true
  sleep 5
  kill -INT $monitor
  wait $monitor
} >&2
cat "$verdicts"
rm "$verdicts"
