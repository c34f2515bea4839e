#!/bin/bash
# Two real models straight from their GGUF files through the whole pipeline: NIAH at 1k and 2k tokens and real LongBench rows cut to fit.
#   tests/real_models.sh FOLDER     FOLDER holds the two .gguf files; prints the tables of runners/model/README.md, keeps results/real-*.db and .html
# LongBench rows come from ../shared (KVB_SHARED), converted by tests/convert; without it only NIAH runs.
set -euo pipefail
cd "$(dirname "$0")/.."
models=${1:-${KVB_MODELS:-../models}} shared=${KVB_SHARED:-../shared}
work=build/real; mkdir -p $work
gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o $work/convert tests/convert/convert.c harness/base/base.c -ljansson -lcrypto
rows=
if [ -d "$shared/data/longbench/mini" ]; then
	for t in qasper multifieldqa_en hotpotqa 2wikimqa musique; do
		$work/convert longbench-mini "$shared/data/longbench/mini/MiniLongBench_$t.json"
	done | awk 'NR % 2' > $work/longbench-qa.jsonl # every second row: a mix of the five tasks
	rows=", {\"name\": \"jsonl\", \"path\": \"$work/longbench-qa.jsonl\", \"lengths\": 1900}"
fi
for file in SmolLM2-135M-Instruct.Q4_1.gguf qwen2.5-coder-0.5b-instruct-q4_k_m.gguf; do
	name=$(echo "${file%%-instruct*}" | tr '[:upper:]' '[:lower:]'); name=${name%%-instruct*}
	[ -f "$models/$file" ] || { echo "$models/$file is not there" >&2; continue; }
	cat > $work/$name.json <<PLAN
{"title": "$name: NIAH and LongBench QA", "targets": ["$models/$file"], "precision": "bf16",
 "tasks": [{"name": "niah-single", "lengths": [1024, 2048], "contexts": 10},
           {"name": "niah-multikey", "lengths": [1024, 2048], "contexts": 3, "questions": 10, "needles": 12}$rows],
 "methods": ["snapkv", "expected-attention", "keydiff", "kvzip"], "retained": [0.1, 0.3, 0.5, 0.7],
 "protocols": ["agnostic"], "max_new_tokens": 32,
 "timing": {"tasks": ["niah-multikey"], "lengths": [2048], "retained": [0.3], "decode_tokens": 8},
 "db": "results/real-$name.db", "report": "results/real-$name.html"}
PLAN
	./kvbench run $work/$name.json
	./kvbench export results/real-$name.db --format md
done
