#!/bin/bash
# ProxyKV on a real pair, Qwen2.5-Coder 0.5B -> 1.5B from their GGUF files: shards, mappers, recall, needles, LongBench rows, time to first token.
#   tests/real_pair.sh FOLDER [STEP...]    FOLDER holds the two .gguf files; steps: data collect train axial needles qa ttft curve and, for LKV on
#                                          the smaller model, lkv lkv_needles lkv_grid lkv_far lkv_texts
#                                          (default: all)
# Plans: harness/pairs/qwen2.5-coder-*.json; results/pair-*.db and .html are kept, trained files go to results/pair-trained. Every
# step goes on where it stopped. Real texts come from ../shared (KVB_SHARED).
set -euo pipefail
cd "$(dirname "$0")/.."
models=${1:?FOLDER with the two .gguf files}; shift
steps=${*:-data collect train axial needles qa ttft curve lkv lkv_needles lkv_grid lkv_far lkv_texts}
K=${KVBENCH:-./kvbench} shared=${KVB_SHARED:-../shared} work=build/real plans=harness/pairs
export KVBENCH_CALIBRATION=${KVBENCH_CALIBRATION:-results/pair-trained}
mkdir -p $work results

# Texts: LongBench QA (even rows to train on, odd ones to ask); two rows each of eight other LongBench tasks, prose apart from lists and code;
# speeches and a story in pieces of about 4,000 characters.
data() {
	gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o $work/convert tests/convert/convert.c harness/base/base.c -ljansson -lcrypto
	local mini="$shared/data/longbench/mini/MiniLongBench"
	for t in qasper multifieldqa_en hotpotqa 2wikimqa musique; do
		$work/convert longbench-mini "${mini}_$t.json"
	done >$work/qa.jsonl
	awk 'NR % 2 == 0' $work/qa.jsonl >$work/pair-qa-train.jsonl
	awk 'NR % 2 == 1' $work/qa.jsonl >$work/pair-qa-eval.jsonl
	for t in gov_report qmsum triviaqa passage_retrieval_en; do
		$work/convert longbench-text "${mini}_$t.json" | awk 'NR <= 2'
	done >$work/pair-prose.jsonl
	for t in samsum trec lcc repobench-p; do
		$work/convert longbench-text "${mini}_$t.json" | awk 'NR <= 2'
	done >$work/pair-code.jsonl
	for f in us_inaugural us_state_union genesis_kjv; do
		tr -d '\\"\000-\010\013-\037' <"$shared/models/corpora/$f.txt" | awk -v f=$f '{ text = text (text ? "\\n" : "") $0 }
			length(text) > 4200 { if (n++ % 5 == 3 && k < 8) printf "{\"id\":\"%s-%d\",\"context\":\"%s\",\"question\":\" \",\"answers\":[\"-\"],\"metric\":\"qa_f1\"}\n", f, k++, text; text = "" }'
	done >$work/text.jsonl
	grep -v genesis $work/text.jsonl | awk 'NR % 2' >$work/pair-speech.jsonl
	grep genesis $work/text.jsonl >$work/pair-story.jsonl
	paste -d '\n' $work/pair-{prose,speech,code,story}.jsonl | awk 'NR <= 17' >$work/lkv-text.jsonl
	paste -d '\n' $work/pair-{prose,speech,code,story}.jsonl | awk 'NR > 17' >$work/lkv-text-eval.jsonl
	wc -l $work/pair-*.jsonl $work/lkv-*.jsonl
}
collect() { "$K" collect proxykv $plans/qwen2.5-coder-train.json --models "$models"; }
train() {
	"$K" train proxykv,selfkv,head-prior $plans/qwen2.5-coder-train.json --models "$models"
	"$K" calibrate iam --target "$models/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf" --proxy "$models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf" --template qwen2.5 --contexts 4
}
# What was tried on the paper's mapper, a row each in this order; the file that methods find is the one of `train`.
axial() {
	"$K" train proxykv $plans/qwen2.5-coder-train.json --models "$models" --out results/pair-trained/axial --set 'training.runs=[
		{"mapper":"axial","steps":600,"embeddings":"shared"}, {"mapper":"axial","steps":600}, {"mapper":"axial","steps":600,"neighbours":"all"},
		{"mapper":"axial","steps":600,"neighbours":"all","norm":"batch"}, {"mapper":"axial","steps":600,"neighbours":"all","encoder":"off"},
		{"mapper":"axial","steps":2400,"neighbours":"all"}]'
}
lkv() { "$K" train kv-mlp,lkv-global,lkv,head-prior $plans/qwen2.5-coder-lkv.json --models "$models"; }
lkv_needles() { run lkv-needles; }
lkv_grid() { run lkv-grid; } # every scorer with every allocator
lkv_far() { run lkv-far; }   # longer contexts, other templates, LongBench rows
lkv_texts() { "$K" continue $plans/qwen2.5-coder-lkv-grid.json --against kvzip@global --models "$models" --tasks "[{\"name\":\"jsonl\",\"path\":\"$work/lkv-text-eval.jsonl\",\"lengths\":664}]"; }
run() { "$K" run $plans/qwen2.5-coder-$1.json --models "$models"; }
needles() { run needles; }
qa() { run qa; }
ttft() { run ttft; }
curve() { run curve; } # its report draws recall against time: both are in pair-train.db
for s in $steps; do "$s"; done
