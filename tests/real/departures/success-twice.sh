#!/bin/sh
# RFC 27: SUCCESS completes the request of a job; no other response for it may follow.
# sched-backfill gives a job what the first one leaves free, and looks at the next ones.
#     flux start tests/real/departures/success-twice.sh
. "$(dirname "$0")/said.sh"

flux module remove sched-simple
flux module load sched-backfill
trace=$(mktemp)
flux module trace --full sched-backfill >"$trace" &
tracing=$!
cores=$(flux resource list -n -s free -o '{ncores}')
flux submit -n $((cores - 1)) -t 1m sleep inf >/dev/null
flux submit --urgency=20 -n "$cores" -t 1m true >/dev/null
flux submit --cc=1-200 -n "$cores" -t 1s true >/dev/null
# They get the last core one after another, and more of them come while the others are looked at.
for _ in $(seq 20); do
  flux submit --urgency=18 --cc=1-50 -n1 -t 1s true >/dev/null
  twice=$(awk '
    / tx < sched\.alloc / { answers = 1; next }
    /^20/ { answers = 0 }
    answers && /^ *"id":/ { id = $2 }
    answers && /^ *"type": 0/ && ++given[id] == 2 { jobs++ }
    END { print jobs + 0 }' "$trace")
  [ "$twice" -gt 0 ] && break
done
flux queue stop --quiet
flux cancel --all 2>/dev/null
flux queue idle --quiet
kill $tracing
rm "$trace"
said 'no job with a second SUCCESS' '^0 jobs' "$twice jobs with a second SUCCESS"
exit $status
