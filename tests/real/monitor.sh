#!/bin/sh
# A monitor joins while jobs run, and stays beside the scheduler: jobs, drains, cancels and reloads.
# Prints the verdicts as JSON. Usage: flux start -s 2 tests/real/monitor.sh SCHEDULER MONITOR...
scheduler=$1
shift
verdicts=$(mktemp)
{
  if ! flux module list | grep -q "^$scheduler "; then
    flux module remove sched-simple
    flux module load "$scheduler"
  fi
  flux submit --cc=1-8 sleep 1
  "$@" --audit --json "$verdicts" &
  monitor=$!
  sleep 2
  flux submit --cc=1-30 sleep 0.1
  flux submit -n9999 true
  long=$(flux submit -t 1m sleep 60)
  flux update "$long" duration=90
  flux resource drain 1 for a while
  flux submit --cc=1-5 true
  flux module reload "$scheduler"
  flux resource undrain 1
  flux module reload job-exec
  flux submit --cc=1-10 --urgency=20 true
  flux cancel --all
  flux run true
  flux queue drain
  sleep 3
  kill -INT $monitor
  wait $monitor
} >&2
cat "$verdicts"
rm "$verdicts"
