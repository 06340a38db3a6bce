#!/bin/sh
# RFC 27: errnum is 0 in every response to sched.alloc, also if the job is denied.
# The queue manager is unloaded while a job waits for another one.
#     flux start tests/real/departures/fluxion/alloc-answered-with-enosys.sh
. "$(dirname "$0")/loaded.sh"

trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
begin_trace "$trace" --full job-manager sched-fluxion-qmanager
running=$(flux submit -N1 --exclusive sleep inf)
flux job wait-event --timeout=30 "$running" start >/dev/null
waiting=$(flux submit -N1 --exclusive true)
flux job wait-event --timeout=30 "$waiting" priority >/dev/null
sleep 1 # by then it is asked for
flux module remove sched-fluxion-qmanager
flux cancel --all
flux job wait-event --timeout=30 "$waiting" clean >/dev/null
kill $tracer
answer=$(grep -o 'tx < sched\.alloc \[[0-9]*\] E[A-Za-z]*' "$trace" | head -n 1)
said 'no answer: the next service is asked again' '^none$' "${answer:-none}"
exit $status
