#!/bin/sh
# A story for `flux start`: jobs that end, fail, are refused, canceled and held; drains; reloads.
# Prints the module trace of SCHEDULER and of the modules that it talks to. Usage, with flux on PATH:
#     flux start -s 2 --test-hosts='node[0-1]' tests/real/story.sh SCHEDULER > TRACE
scheduler=$1
{
  if ! flux module list | grep -q "^$scheduler "; then
    flux module remove sched-simple
    flux module load "$scheduler"
  fi
} >&2
flux module trace --full job-manager "$scheduler" job-exec resource &
trace=$!
exec >/dev/null 2>&1
sleep 0.5
flux module reload job-exec
flux module reload "$scheduler"
for urgency in 1 31 16 20 5 9; do flux submit --urgency=$urgency sleep 0.2; done
held=$(flux submit --urgency=0 true)
long=$(flux submit sleep 20)
wide=$(flux submit -N2 --exclusive sleep 20)
flux submit --cc=1-20 true
flux submit -t 1s sleep 20
first=$(flux submit --begin-time=+0.5s true)
flux submit --dependency=afterany:"$first" true
flux job urgency "$held" 20
sleep 0.5
flux cancel "$wide"
flux run true
flux run false
flux run sh -c 'kill -9 $$'
flux run /nonexistent
flux submit -n9999 true
flux update "$long" duration=90
flux resource drain 0 for a while
flux submit -N2 true
sleep 0.3
flux resource undrain 0
flux queue stop
flux submit true
flux queue start
flux module reload "$scheduler"
flux submit --cc=1-20 sleep 0.05
flux module reload job-exec
flux cancel "$long"
flux queue drain
sleep 1
kill $trace
