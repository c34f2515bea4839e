#!/bin/bash
# --kv-offload through the whole program on an emulated GPU. A deep model, whose layers take turns in the few buffers: answers, kept counts and scores are those of
# caches on the device, bit for bit, and in fp32 the CPU's; the timing pass shows the memory saved. A wide one, whose
# context fits in no other way. What takes more than one part in 1024 of the device's memory is offloaded. Called as test_run.sh is.
cd "$(dirname "$0")/../.."
K=${KVB_EMU:?run it through make cudaemu}/kvbench
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
export KVBENCH_CALIBRATION=$dir/trained
model() { # NAME, shape
	local name=$1; shift
	mkdir "$dir/$name" && cp runners/model/tiny-pair/target/{tokenizer,tokenizer_config,generation_config}.json "$dir/$name" && "$KVB_EMU/wide_model" "$dir/$name" "$@"
}
run() { # PLAN NAME CODE options...
	local plan=$1 name=$2 code=$3 rc; shift 3
	"$K" run "$dir/$plan.json" --db "$dir/$name.db" -q "$@" >"$dir/$name.out" 2>"$dir/$name.err"; rc=$?
	if [ $rc -eq "$code" ]; then echo "ok - $name: exit code $rc"; else echo "not ok - $name: exit code $rc"; cat "$dir/$name.err"; value "$name" "SELECT message FROM sample WHERE status <> 'ok'"; fi
}
value() { "${KVB_EMU%/cudaemu}/plant" "$dir/$1.db" "$2"; } # NAME SQL: its first value
is() { # NAME VALUE SQL
	local got; got=$(value "$1" "$3")
	if [ "$got" = "$2" ]; then echo "ok - $1: $2"; else echo "not ok - $1: $got, not $2: $3"; fi
}
answers() { # NAME [WHERE]: a line each
	value "$1" "SELECT group_concat(line, char(10)) FROM (SELECT method.name || ' ' || protocol || ' ' || sample_id || ' ' || status || ' ' || answer_ids || coalesce(kept, '') AS line
		FROM sample JOIN cell USING (cell_id) JOIN method USING (method_id) WHERE ${2:-true} ORDER BY 1)"
}
same() { # WHAT NAME NAME [WHERE]
	if [ -n "$(answers "$2" "$4")" ] && diff <(answers "$3" "$4") <(answers "$2" "$4") >"$dir/diff"; then echo "ok - $1"; else echo "not ok - $1"; head -n 5 "$dir/diff"; fi
}

# ---- deep: 12 layers ----
model deep 12 8 4 32
cat >"$dir/deep.json" <<J
{"targets": ["$dir/deep"], "retained": [0.5], "protocols": ["agnostic", "aware"], "max_new_tokens": 6, "timing": {"enabled": false},
 "methods": ["streaming-llm", "snapkv", "h2o", "kvzip", "lkv"], "tasks": [{"name": "niah-multikey", "lengths": [64], "contexts": 1, "questions": 2}],
 "training": {"contexts": 1, "eval": 1, "shards": "$dir/shards", "runs": {"lkv": [{"steps": 2}]}}}
J
export CUEMU_MEM=192M
"$K" train lkv,head-prior "$dir/deep.json" -q --device cpu >"$dir/train.out" 2>&1 || { echo "not ok - lkv is trained"; cat "$dir/train.out"; }
run deep cpu 0 --device cpu --precision fp32 --protocols agnostic
run deep fp32 0 --device cuda --precision fp32 --protocols agnostic --kv-offload &
run deep device 0 --device cuda &
CUEMU_SEED=1 run deep offload 0 --device cuda --kv-offload &
wait
same "fp32: offloaded as on the CPU" fp32 cpu
is device 1 "SELECT count(DISTINCT answer_ids) > 8 FROM sample" # a wrong cache would give another answer
is device emulated-gpu "SELECT group_concat(DISTINCT topology) FROM cell"
is offload emulated-gpu+offload "SELECT group_concat(DISTINCT topology) FROM cell"
same "bf16: offloaded as on the device" offload device
for method in h2o kvzip; do
	for offload in '' --kv-offload; do "$K" scores "$dir/deep.json" --protocols agnostic --method $method --device cuda $offload -q --out "$dir/scores$offload" >"$dir/scores.out" 2>&1 || cat "$dir/scores.out"; done
	if cmp -s "$dir/scores" "$dir/scores--kv-offload"; then echo "ok - the scores of $method are the same"; else echo "not ok - the scores of $method differ"; fi
done

# ---- its memory: 4 of the 12 layers, and what is left of them ----
sed 's|"timing".*|"timing": {"repetitions": 9, "warmup": 0, "decode_tokens": 1},|; s|"methods": .*\], "tasks"|"methods": [], "tasks"|; s|, "aware"||' "$dir/deep.json" >"$dir/timed.json"
run timed timed-device 0 --device cuda &
run timed timed-offload 0 --device cuda --kv-offload &
wait
is timed-offload 9 "SELECT count(*) FROM timing JOIN cell USING (cell_id) JOIN method USING (method_id) WHERE name = 'random' AND phase = 'ttft' AND clock = 'host'"
peak() { value "$1" "SELECT max(peak_bytes) FROM timing JOIN cell USING (cell_id) JOIN method USING (method_id) WHERE name = '$2'"; }
for method in full random; do
	kv=$(value timed-device "SELECT max(kv_bytes_before) FROM timing"); device=$(peak timed-device $method); offload=$(peak timed-offload $method)
	if [ "$offload" -gt 0 ] && [ "$offload" -lt "$device" ]; then echo "ok - $method: peak of $offload bytes, $device on the device (a cache of $kv)"
	else echo "not ok - $method: peak of $offload bytes, $device on the device (a cache of $kv)"; fi
done

# ---- wide: the cache takes more than is left by weights, scratch that is used, and 4 MB ----
export CUEMU_MEM=1G
model wide 128 16 16 128
words=$(for i in {1..8}; do printf 'The old man saw the lake. Code %d. ' $i; done)
echo "{\"id\": \"a\", \"context\": \"$words\", \"question\": \"?\", \"answers\": [\"-\"], \"metric\": \"qa_f1\", \"max_new_tokens\": 1}" >"$dir/row.jsonl"
cat >"$dir/wide.json" <<J
{"targets": ["$dir/wide"], "retained": [0.5], "methods": [], "precision": "fp32", "chat_template": "raw", "timing": {"enabled": false},
 "tasks": [{"name": "jsonl", "path": "$dir/row.jsonl"}]}
J
run wide wide-cpu 0 --device cpu
run wide wide-none 1 --device cuda --memory 1M
fixed=$(grep -o 'needs [0-9]*' "$dir/wide-none.err"); fixed=${fixed#needs }
run wide wide-device 1 --device cuda --memory $((fixed + 4000000))
is wide-device 'oom 2' "SELECT status || ' ' || count(*) FROM sample WHERE oom_bytes > 160000000 AND oom_free_bytes > 0 AND oom_free_bytes < oom_bytes
	AND message LIKE '%; ' || oom_free_bytes || ' are free' GROUP BY status"
CUEMU_FAIL=cudaHostAlloc:3:2 run wide wide-host 1 --device cuda --memory $((fixed + 4000000)) --kv-offload # the cache's keys, after argument lists and weights
is wide-host 'oom 2' "SELECT status || ' ' || count(*) FROM sample WHERE oom_bytes > 80000000 AND oom_free_bytes > oom_bytes
	AND message LIKE '%asked for ' || oom_bytes || ' bytes of pinned memory on the host, ' || oom_free_bytes || ' free there' GROUP BY status"
run wide wide-offload 0 --device cuda --memory $((fixed + 4000000)) --kv-offload
is wide-offload emulated-gpu+offload "SELECT group_concat(DISTINCT topology) FROM cell"
same "what does not fit is answered as on the CPU" wide-offload wide-cpu
