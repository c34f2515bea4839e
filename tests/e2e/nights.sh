#!/bin/bash
# Four nights with true faults in the process (tests/nights.sh), on a small plan. Margins of time are wide here and the slowdown is
# large, since other work of the machine must not decide a test; what the usual margins see is in tests/unit/results/test_gate.c.
cd "$(dirname "$0")/../.."
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
cat >"$dir/plan.json" <<'J'
{"targets": ["tiny-pair/target"], "models": "runners/model", "methods": ["snapkv", "keydiff"], "retained": [0.3],
 "tasks": [{"name": "niah-multikey", "lengths": [512], "contexts": 20, "questions": 8}], "timing": {"repetitions": 20, "decode_tokens": 1}}
J
tests/nights.sh -s snapkv:9 -l keydiff:.2 -g '--ratio-margin .5 --time-margin 20 --waited 99' "$dir/plan.json" "$dir/nights" >"$dir/out" 2>&1; rc=$?
grep -E '^(ok|not ok|skip) - ' "$dir/out"
[ $rc -eq 0 ] || cat "$dir/out"
