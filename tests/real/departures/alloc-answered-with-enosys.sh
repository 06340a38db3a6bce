#!/bin/sh
# RFC 27: errnum is 0 in every response to sched.alloc, also if the job is denied.
# A request comes while the scheduler, which is held for the moment, has been told to end.
#     flux start tests/real/departures/alloc-answered-with-enosys.sh
. "$(dirname "$0")/said.sh"

trace=$(mktemp)
flux module trace --full sched-simple >"$trace" &
tracing=$!
# seen PATTERN: wait until the trace has a message, 30 s at most
seen() {
  for _ in $(seq 300); do
    grep -q "$1" "$trace" && return
    sleep 0.1
  done
}
flux module reload sched-simple
seen 'tx > module\.status'
process=$(pgrep -P "$(flux getattr broker.pid)" -f 'module-python-exec.*sched-simple')
kill -STOP $process
flux module remove sched-simple &
removing=$!
seen 'rx > sched-simple\.shutdown'
jobid=$(flux submit true)
seen 'rx > sched\.alloc'
kill -CONT $process
wait $removing
seen 'tx < sched\.alloc'
kill $tracing
flux module load sched-simple
flux job wait-event --timeout=30 "$jobid" clean >/dev/null
answer=$(grep -o 'tx < sched\.alloc \[0\] [A-Za-z]*' "$trace" | head -n 1)
rm "$trace"
said 'success, or no answer: the next service is asked again' '(none|success)$' "${answer:-none}"
exit $status
