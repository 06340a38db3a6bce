#!/bin/sh
# RFC 27, Ready: in limited mode no more requests are sent than the scheduler has asked for.
# sched-simple asks for 8. A request that is canceled is open until it is answered. The answer may
# come in time, so this is tried with several requests.
#     flux start tests/real/departures/beyond-the-limit.sh
. "$(dirname "$0")/said.sh"

trace=$(mktemp)
trap 'rm -f "$trace"' EXIT
running=$(flux submit -N1 --exclusive sleep inf)
flux job wait-event --timeout=30 "$running" start >/dev/null
pending=$(flux submit --cc=1-24 -N1 --exclusive true)
last=$(echo "$pending" | tail -n 1)
flux job wait-event --timeout=30 "$last" priority >/dev/null
begin_trace "$trace" job-manager
for jobid in $(echo "$pending" | head -n 8); do flux cancel "$jobid"; done
sleep 1
kill $tracer
flux cancel --all
flux queue drain
sequence=$(grep -Eo '[rt]x [<>] sched\.(alloc|cancel)' "$trace" | tr '\n' ' ')
early=$(echo "$sequence" | grep -Eo 'tx > sched\.cancel tx > sched\.alloc rx < sched\.alloc')
said '8 are open: the answer (rx <) comes before the next request (tx >)' \
  'tx > sched.cancel rx < sched.alloc' "$(echo "${early:-$sequence}" | head -n 1)"
exit $status
