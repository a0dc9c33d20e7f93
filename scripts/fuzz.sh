#!/usr/bin/env bash
# Runs every fuzz target of the repository for FUZZTIME each, one after the other, and prints how often each was
# executed. A target that was executed less than FUZZFLOOR times a second fails: it has fuzzed nothing. Before it
# fails it gets ten times as long for the same number: the inputs that are known from earlier runs go first, they
# count for nothing, and where a package brings SQLite each takes milliseconds, which uses up a short FUZZTIME.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}
floor=${FUZZFLOOR:-5}
seconds=$(sed -E 's/^([0-9]+)s$/\1/; s/^([0-9]+)m$/\1*60/' <<<"$time")
[[ $seconds =~ ^[0-9]+(\*60)?$ ]] || { echo "fuzz: FUZZTIME is seconds or minutes, as in 30s or 5m"; exit 2; }
seconds=$((seconds))
least=$((seconds * floor))
out=$(mktemp)
trap 'rm -f "$out"' EXIT
n=0 all=0 slow=""
while IFS=: read -r file name; do
  dir=./$(dirname "$file")
  for long in "${seconds}s" "$((seconds * 10))s"; do
    # A new input is minimised by one execution: with Go's default of 60 s that alone uses up the time.
    go test "$dir" -run '^$' -fuzz "^${name}\$" -fuzztime "$long" -fuzzminimizetime 1x >"$out" 2>&1 ||
      { cat "$out"; echo "fuzz: $dir $name failed"; exit 1; }
    execs=$(grep -oE 'execs: [0-9]+' "$out" | tail -1 | grep -oE '[0-9]+' || echo 0)
    [ "$execs" -lt "$least" ] || break
  done
  echo "fuzz: $dir $name: $execs executions"
  [ "$execs" -ge "$least" ] || slow+=" $name ($execs)"
  n=$((n + 1)) all=$((all + execs))
done < <(git grep -noE '^func (Fuzz[A-Za-z0-9_]+)' -- '*_test.go' | sed -E 's/:[0-9]+:func /:/' | grep -E "${FUZZONLY:-.}")
[ "$n" -gt 0 ] || { echo "fuzz: no target"; exit 1; }
[ -z "$slow" ] || { echo "fuzz: fewer than $least executions in ten times $time:$slow"; exit 1; }
echo "fuzz: $n targets, $time each, $all executions, nothing found"
