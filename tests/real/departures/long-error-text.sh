#!/bin/sh
# RFC 6: the text of an error response should be under 80 characters.
#     flux start tests/real/departures/long-error-text.sh
. "$(dirname "$0")/said.sh"

echo 'ingest.validator.plugins = ["jobspec", "feasibility"]' | flux config load
text=$(flux submit -n 9999 true 2>&1 | sed 's/^[^:]*: [A-Z]*: //; s/^\[Errno [0-9]*\] //')
said 'a text of less than 80 characters' '^.{1,79}$' "$text"
exit $status
