#!/bin/sh
# RFC 21: in CLEANUP, free comes after the final release of a job that was started, also if job-exec
# is removed between the end of the job and its release. It is removed while short jobs run, until
# that has happened, 20 times at most.
#     flux start tests/real/departures/finish-without-release.sh
. "$(dirname "$0")/said.sh"

events() {
  flux job eventlog --format=json "$1" | sed 's/.*"name":"\([^"]*\)".*/\1/' | tr '\n' ' '
}

seen=none
for _ in $(seq 20); do
  flux submit --quiet --cc=1-40 --setattr=exec.test.run_duration=0.01s true
  flux module remove job-exec
  for jobid in $(flux jobs --no-header --filter=cleanup --format='{id}'); do
    case "$(events "$jobid")" in
    *'finish ')
      flux job raise --type=wake --severity=7 "$jobid" # it waits for an event
      flux job wait-event --timeout=10 "$jobid" clean >/dev/null
      seen=$(events "$jobid")
      ;;
    esac
  done
  flux module load job-exec
  flux queue drain
  [ "$seen" = none ] || break
done
said 'release between finish and free' '(finish release .*free|none$)' "$seen"
exit $status
