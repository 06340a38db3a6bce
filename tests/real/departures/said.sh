# For the scripts of this folder: say what is expected and what came, and end with 1 if they differ.
status=0

# said EXPECTED PATTERN GOT: what the RFC expects in words, a pattern (grep -E) of it, what flux-core said
said() {
  printf 'expected: %s\ngot:      %s\n' "$1" "$3"
  printf '%s' "$3" | tr '\n' ' ' | grep -Eq "$2" || status=1
}
