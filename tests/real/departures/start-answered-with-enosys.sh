#!/bin/sh
# RFC 32: errnum is 0 in every response to a start request, also in those that tell of a problem.
# A start comes while job-exec, here a process that is held for the moment, has been told to end.
#     flux start tests/real/departures/start-answered-with-enosys.sh
. "$(dirname "$0")/said.sh"

trace=$(mktemp)
flux module trace --full job-exec >"$trace" &
tracing=$!
# seen PATTERN: wait until the trace has a message, 30 s at most
seen() {
  for _ in $(seq 300); do
    grep -q "$1" "$trace" && return
    sleep 0.1
  done
}
flux module remove job-exec
flux module load --exec job-exec
seen 'tx > module\.status'
process=$(pgrep -P "$(flux getattr broker.pid)" -f 'module-exec.*job-exec')
kill -STOP $process
flux module remove job-exec &
removing=$!
seen 'rx > job-exec\.shutdown'
jobid=$(flux submit true)
seen 'rx > job-exec\.start'
kill -CONT $process
wait $removing
seen 'tx < job-exec\.start'
kill $tracing
flux module load job-exec
flux job wait-event --timeout=30 "$jobid" clean >/dev/null
answer=$(grep -o 'tx < job-exec\.start \[0\] [A-Za-z]*' "$trace" | head -n 1)
rm "$trace"
said 'success, or no answer: the next service is asked again' '(none|success)$' "${answer:-none}"
exit $status
