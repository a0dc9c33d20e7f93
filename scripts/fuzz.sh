#!/usr/bin/env bash
# Runs every fuzz target of the repository for FUZZTIME each, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}
n=0
while IFS=: read -r file name; do
  dir=./$(dirname "$file")
  echo "fuzz: $dir $name"
  go test "$dir" -run '^$' -fuzz "^${name}\$" -fuzztime "$time" >/tmp/waldo-fuzz.$$ 2>&1 || { cat /tmp/waldo-fuzz.$$; rm -f /tmp/waldo-fuzz.$$; exit 1; }
  rm -f /tmp/waldo-fuzz.$$
  n=$((n + 1))
done < <(git grep -noE '^func (Fuzz[A-Za-z0-9_]+)' -- '*_test.go' | sed -E 's/:[0-9]+:func /:/')
echo "fuzz: $n targets, $time each, nothing found"
