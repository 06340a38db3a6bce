#!/bin/sh
# RFC 32, Start Request: the final release is the last response, and finish comes once. A job of the
# test execution that ends just before its time limit gets a second finish, of the limit's signal.
#     flux start tests/real/departures/finish-twice.sh
. "$(dirname "$0")/said.sh"

trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
begin_trace "$trace" --full job-exec job-manager
# The time between is short: all is tried again until it is met.
for _ in $(seq 10); do
  for duration in 0.97 0.98 0.985 0.99; do
    flux submit --quiet --cc=1-6 -t 1s --setattr=system.exec.test.run_duration=${duration}s true
  done
  flux queue drain
  sleep 1
  twice=$(awk '/job-exec tx < job-exec.start/ { answer = 1 }
    answer && /"id":/ { id = $2 }
    answer && /"type": "finish"/ { if (finished[id]++ == 1) count++ }
    /^[^ {}]/ && !/job-exec tx < job-exec.start/ { answer = 0 }
    END { print count + 0 }' "$trace")
  [ "$twice" -gt 0 ] && break
done
kill $tracer
said '0 jobs with a second finish' '^0 jobs' "$twice jobs with a second finish"
exit $status
