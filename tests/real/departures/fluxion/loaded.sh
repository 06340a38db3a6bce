# For the scripts of this folder: fluxion takes the place of sched-simple. FLUXION_MODULES has the
# directories of its modules, with colons, if flux-core does not find them.
. "$(dirname "$0")/../said.sh"

# module NAME: its file, or the name where flux-core finds it
module() {
  for place in $(echo "$FLUXION_MODULES" | tr : ' '); do
    [ -e "$place/$1.so" ] && echo "$place/$1.so" && return
  done
  echo "$1"
}

flux module remove sched-simple
flux module load "$(module sched-fluxion-resource)" load-allowlist=node,core,gpu
flux module load "$(module sched-fluxion-feasibility)"
flux module load "$(module sched-fluxion-qmanager)"
