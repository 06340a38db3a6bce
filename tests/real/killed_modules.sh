#!/bin/sh
# Kills our scheduler and our execution service, as modules, while 100 jobs run, and loads them again.
# Each job writes its number to the file RAN. Usage:
#     flux start -s 1 tests/real/killed_modules.sh LOADER RAN
loader=$1 ran=$2
load() { flux module load --loader="$loader" "$("$loader" --path "$1")" || exit 1; }

# killed NAME: kill the process of a module, and wait for the broker to see it
killed() {
  kill -9 "$(flux dmesg | sed -n "s/.*module-loader $1 pid=//p" | tail -n 1)"
  while flux module list | grep -q "^$1 "; do sleep 0.1; done
}

flux setattr broker.module-nopanic 1
flux module remove sched-simple
load sched
load exec
flux submit --quiet --cc=1-100 sh -c "echo \$FLUX_JOB_CC >> $ran; sleep 0.1"
sleep 1; killed sched_trio; load sched
sleep 1; killed exec_trio; load exec
sleep 1; killed exec_trio; load exec
flux queue drain
flux jobs -ano '{status}'
flux module remove exec_trio
flux module reload job-exec
flux module remove sched_trio
flux module load sched-simple
