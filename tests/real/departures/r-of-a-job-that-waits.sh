#!/bin/sh
# RFC 27: a SUCCESS response makes the job manager post the alloc event. A scheduler stores R before
# it answers. If it leaves between the two, and then the job manager is loaded again, this takes the
# job to have that R already: it refuses the SUCCESS of the next scheduler, and asks it nothing more.
# Here R is stored by hand, for a job that waits while no scheduler is there.
#     flux start tests/real/departures/r-of-a-job-that-waits.sh
. "$(dirname "$0")/said.sh"

flux module remove sched-simple
jobid=$(flux submit true)
flux job wait-event --timeout=30 "$jobid" priority >/dev/null
flux kvs put "$(flux job id --to=kvs "$jobid").R=$(flux kvs get resource.R)"
for name in job-list job-info job-ingest job-exec; do flux module remove $name; done
flux module reload job-manager
for name in job-exec job-ingest job-info job-list; do flux module load $name; done
flux module load sched-simple
flux job wait-event --timeout=10 "$jobid" alloc >/dev/null 2>&1
events=$(flux job eventlog --format=json "$jobid" | sed 's/.*"name":"\([^"]*\)".*/\1/' | tr '\n' ' ')
said 'an alloc event after the SUCCESS' 'alloc' "$events"
flux cancel "$jobid"
flux module reload sched-simple
exit $status
