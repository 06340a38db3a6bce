#!/bin/sh
# RFC 27, Alloc Success: after a SUCCESS a request is complete, and gets no further answer.
# sched-backfill removes the jobs that it backfills from its queue when a pass is over. A request that
# comes during a pass ends it early: what was granted by then stays in the queue, and is granted again.
#     flux start tests/real/departures/backfill-grants-again.sh
. "$(dirname "$0")/said.sh"

trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
runs() { echo "--setattr=system.exec.test.run_duration=$1"; }
flux module remove sched-simple
flux module load sched-backfill
flux submit -n 1 -t 10m "$(runs 600s)" true >/dev/null
flux submit -N 1 --exclusive -t 10m "$(runs 1s)" true >/dev/null
begin_trace "$trace" --full job-manager
for _ in 1 2 3 4; do flux submit --cc=1-400 -n 1 -t 1s "$(runs 0.01s)" true >/dev/null; done
sleep 3
kill $tracer
flux cancel --all
flux queue drain
most=$(awk '/^[0-9]/ { here = / rx < sched\.alloc / } here && $1 == "\"id\":" { id = $2 }
  here && $1 == "\"type\":" && $2 + 0 == 0 && ++granted[id] > most { most = granted[id] }
  END { print most }' "$trace")
said 'one SUCCESS for a job' '^1 ' "${most:-no} SUCCESS"
exit $status
