#!/bin/sh
# Plants faults into a scheduler of flux-core by a tap, one load for each, and cleans up after it.
# Writes the trace of each to NAME.jsonl in DIRECTORY. Usage, with flux on PATH:
#     flux start -s 1 tests/real/tapped.sh TAP SCHEDULER DIRECTORY
tap=$1 scheduler=$2
cd "$3" || exit 1
module=$("$tap" --path "$scheduler")
exec 2>&1

# load NAME ARGUMENTS: load the scheduler with a tap
load() {
  trace=$PWD/$1.jsonl; shift
  flux module load --loader="$tap" "$module" tap-trace="$trace" "$@" || exit 1
}

# replaced: end all jobs with another scheduler, which a fault of the first one does not hinder
replaced() {
  flux module remove "$scheduler"
  flux module load sched-simple
  flux cancel --all
  flux queue start
  flux queue idle
  flux module remove sched-simple
}

flux module remove sched-simple

load nothing
flux run true
flux run -n2 false
flux ping -c 1 "$scheduler"
flux submit -n2 sleep 60
flux submit true
flux cancel --all
flux queue idle
replaced

load drop-success tap-drop=tx,response,sched.alloc,type=0
flux submit true
sleep 0.3
cp drop-success.jsonl drop-success-live.jsonl
replaced

load duplicate-success tap-duplicate=tx,response,sched.alloc,type=0
flux run true
replaced

load duplicate-alloc tap-duplicate=rx,request,sched.alloc
flux run true
replaced

load drop-cancel tap-drop=tx,response,sched.alloc,type=3
flux submit -n2 sleep 60
flux submit true
flux queue stop
sleep 0.3
cp drop-cancel.jsonl drop-cancel-live.jsonl
replaced

load drop-hello
flux submit -n2 sleep 60
flux job wait-event "$(flux job last)" start
flux module remove "$scheduler"
load drop-hello tap-drop=rx,response,job-manager.sched-hello,errnum=0
flux run true
replaced

load drop-free tap-drop=rx,request,sched.free
flux run true
replaced

load duplicate-free tap-duplicate=rx,request,sched.free
flux run true
replaced

flux module load sched-simple
