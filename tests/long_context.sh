#!/bin/bash
# A context of 170,000 tokens on the embedded target: prefill, SnapKV at r = .1, an answer; then peak memory against the estimate that was
# printed before anything was allocated. Some minutes on 2 cores. The model need not answer well so far beyond its training.
#   tests/long_context.sh [TOKENS]
set -euo pipefail
cd "$(dirname "$0")/.."
tokens=${1:-170000}
work=build/long; mkdir -p $work
rm -f $work/long.db
cat > $work/plan.json <<PLAN
{"title": "$tokens tokens", "targets": ["tiny-pair/target"], "allow_long": true,
 "tasks": [{"name": "niah-multikey", "lengths": $tokens, "contexts": 1, "questions": 2, "needles": 20}],
 "methods": ["snapkv"], "retained": [0.1], "protocols": ["agnostic"], "timing": {"enabled": false}, "db": "$work/long.db"}
PLAN
./kvbench run $work/plan.json --dry-run
timer=; [ -x /usr/bin/time ] && timer="/usr/bin/time -f %es,%MKiB-resident" # Debian's package time
$timer ./kvbench run $work/plan.json
./kvbench export $work/long.db --format md
