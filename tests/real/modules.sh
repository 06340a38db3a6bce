#!/bin/sh
# Loads our scheduler, our execution service and a module of the docs into a live flux-core, runs a
# job, reloads the services while another one runs, and gives both places back. Usage:
#     flux start -s 1 tests/real/modules.sh LOADER GREETER
loader=$1 greeter=$2
load() { flux module load --loader="$loader" "$@" || exit 1; }
set -e
flux module remove sched-simple
load "$("$loader" --path sched)" policy=easy
load "$("$loader" --path exec)"
load "$greeter" salut
flux run echo a job
flux python -c 'import flux; print(flux.Flux().rpc("greeter.hello").get()["text"])'
flux ping -c 1 sched_trio >/dev/null
running=$(flux submit sleep 60)
flux job wait-event "$running" start >/dev/null
flux module reload --loader="$loader" "$("$loader" --path sched)"
flux module reload --loader="$loader" "$("$loader" --path exec)"
flux run echo after the reload
flux jobs -no '{name} {status}'
flux cancel "$running" 2>/dev/null
flux queue drain
flux module remove greeter
if flux module load --loader="$loader" "$greeter" 42 2>&1; then exit 1; fi
flux module remove exec_trio
flux module reload job-exec
flux module remove sched_trio
flux module load sched-simple
flux run echo as before
