#!/bin/sh
# A story for `flux start`: 100 jobs of our execution service, which is killed and started again while
# they run; then jobs that fail, read, write, are canceled, signaled and out of time. Leaves in DIR what
# flux says of them and a trace of its modules. Usage, with flux on PATH:
#     flux start tests/real/exec.sh DIR FLUX-TRIO...
dir=$1
shift
serve() {
  "$@" attach exec 2>"$dir/$name.log" &
  service=$!
  until grep -q "runs jobs" "$dir/$name.log"; do sleep 0.1; done
}
told() { flux job attach "$1" >"$dir/$2.out" 2>&1; echo "$2 $?" >>"$dir/codes"; }
exec >"$dir/log" 2>&1
mkfifo "$dir/gate"
flux module trace --full job-manager sched-simple resource >"$dir/trace" &
trace=$!
sleep 0.5
flux module reload sched-simple
name=first serve "$@"
flux submit --cc=1-100 --job-name=cc-{cc} \
  sh -c "echo {cc} >>$dir/ran; echo out {cc}; read x <$dir/gate; echo end {cc}; exit \$(({cc} % 3))"
fifth=$(flux jobs -no '{id} {name}' | sed -n 's/ cc-5$//p')
until [ "$(wc -l <"$dir/ran")" = 100 ]; do sleep 0.1; done
canceled=$(flux submit sleep 100)
ended=$(flux submit sh -c 'trap "" TERM; echo here; sleep 100')
flux job wait-event "$canceled" start
flux job wait-event -p output "$ended" data
flux cancel "$ended"
kill -9 $service
wait $service
flux cancel "$canceled"
name=second serve "$@"
: >"$dir/gate"
limited=$(flux submit -t 0.5s sleep 100)
signaled=$(flux submit sh -c 'trap "echo got it; exit 7" USR1; echo ready; while :; do sleep 0.1; done')
flux job wait-event -p output "$signaled" data
flux job kill -s USR1 "$signaled"
seq 1 50000 | flux run wc -l >"$dir/input.out"
flux run -n2 sh -c 'echo $FLUX_TASK_RANK; kill -9 $$' >"$dir/killed.out"
echo "killed $?" >>"$dir/codes"
flux run /nonexistent
echo "missing $?" >>"$dir/codes"
flux queue drain
told "$limited" limited
told "$signaled" signaled
told "$canceled" canceled
told "$ended" ended
told "$fifth" fifth
flux job eventlog -p exec "$fifth" >"$dir/exec.eventlog"
flux jobs -ano '{name} {status} {returncode}' >"$dir/jobs"
flux kvs namespace list >"$dir/namespaces"
sleep 0.5
kill $trace
kill $service
wait $service
echo "service $?" >>"$dir/codes"
