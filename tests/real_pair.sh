#!/bin/bash
# ProxyKV on a real pair, Qwen2.5-Coder 0.5B -> 1.5B from their GGUF files: shards, mappers, recall, needles, LongBench rows, time to first token.
#   tests/real_pair.sh FOLDER [STEP...]    FOLDER holds the two .gguf files; steps: data collect train needles qa ttft (default: all)
# Plans: harness/pairs/qwen2.5-coder-*.json; results/pair-*.db and .html are kept, trained files go to results/pair-trained. Every
# step goes on where it stopped. Real texts come from ../shared (KVB_SHARED).
set -euo pipefail
cd "$(dirname "$0")/.."
models=${1:?FOLDER with the two .gguf files}; shift
steps=${*:-data collect train needles qa ttft}
K=${KVBENCH:-./kvbench} shared=${KVB_SHARED:-../shared} work=build/real plans=harness/pairs
export KVBENCH_CALIBRATION=${KVBENCH_CALIBRATION:-results/pair-trained}
mkdir -p $work results

# Rows: LongBench QA (even ones to train on, odd ones to ask), speeches and a story in pieces of about 4,000 characters.
data() {
	gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o $work/convert tests/convert/convert.c harness/base/base.c -ljansson -lcrypto
	for t in qasper multifieldqa_en hotpotqa 2wikimqa musique; do
		$work/convert longbench-mini "$shared/data/longbench/mini/MiniLongBench_$t.json"
	done >$work/qa.jsonl
	awk 'NR % 2 == 0' $work/qa.jsonl >$work/pair-qa-train.jsonl
	awk 'NR % 2 == 1' $work/qa.jsonl >$work/pair-qa-eval.jsonl
	for f in us_inaugural us_state_union genesis_kjv; do
		tr -d '\\"\000-\010\013-\037' <"$shared/models/corpora/$f.txt" | awk -v f=$f '{ text = text (text ? "\\n" : "") $0 }
			length(text) > 4200 { if (n++ % 7 == 3 && k < 4) printf "{\"id\":\"%s-%d\",\"context\":\"%s\",\"question\":\"What is this about?\",\"answers\":[\"a speech\"],\"metric\":\"qa_f1\"}\n", f, k++, text; text = "" }'
	done >$work/pair-text.jsonl
	wc -l $work/pair-*.jsonl
}
collect() { "$K" collect proxykv $plans/qwen2.5-coder-train.json --models "$models"; }
train() {
	"$K" train proxykv,selfkv,head-prior $plans/qwen2.5-coder-train.json --models "$models"
	"$K" calibrate iam --target "$models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf" --proxy "$models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf" --template qwen2.5 --contexts 4
}
run() { "$K" run $plans/qwen2.5-coder-$1.json --models "$models"; }
needles() { run needles; }
qa() { run qa; }
ttft() { run ttft; }
for s in $steps; do "$s"; done
