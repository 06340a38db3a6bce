# For the scripts of this folder, which say what is expected and what came, and end with 1 if these
# differ.
status=0

# said EXPECTED PATTERN GOT: what the RFC expects in words, a pattern (grep -E) of it, what flux-core said
said() {
  printf 'expected: %s\ngot:      %s\n' "$1" "$3"
  printf '%s' "$3" | tr '\n' ' ' | grep -Eq "$2" || status=1
}

# begin_trace FILE ARGUMENT...: trace modules, of which job-manager is one, until `kill $tracer`
begin_trace() {
  file=$1
  shift
  flux module trace "$@" >"$file" &
  tracer=$!
  until [ -s "$file" ]; do flux queue status >/dev/null; done
}
