#!/bin/bash
# What a plan says of models and devices counts in every verb that reads a plan; a key that a verb has no use for is refused as an option
# and is not in its --help; shards made otherwise are made anew.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
export KVBENCH_CALIBRATION="$dir/trained"
plan=$dir/plan.json
cat >"$plan" <<J
{"title": "keys", "pairs": [{"target": "tiny-pair/target", "proxy": "tiny-pair/proxy"}], "models": "runners/model",
 "tasks": [{"name": "niah-multikey", "lengths": [256], "contexts": 1, "questions": 2}],
 "methods": ["snapkv"], "retained": [0.3], "timing": {"enabled": false}, "db": "$dir/a.db",
 "training": {"contexts": 2, "eval": 1, "shards": "$dir/shards", "runs": [{"mapper": "linear"}]}}
J
mkdir "$dir/models" # the embedded target, made for 300 tokens
cp -r runners/model/tiny-pair/target "$dir/models/short"
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 300/' "$dir/models/short/config.json"
short="pairs=[{\"target\":\"$dir/models/short\",\"proxy\":\"tiny-pair/proxy\"}]"
check() { local name=$1; shift; if "$@" >/dev/null; then echo "ok - $name"; else echo "not ok - $name"; tail -n 5 "$dir/err"; fi; }
wants() { # CODE, words on stderr, command...
	local code=$1 words=$2 rc; shift 2
	"$@" >"$dir/out" 2>"$dir/err" </dev/null; rc=$?
	if [ "$rc" -eq "$code" ] && { [ -z "$words" ] || grep -qF -- "$words" "$dir/err"; }; then echo "ok - $code, $words: ${*:1:5}"
	else echo "not ok - wanted $code and \"$words\", got $rc: $*"; cat "$dir/err"; fi
}
verb() { # NAME, options: one run of it
	local name=$1; shift
	case $name in
	train | collect) "$K" "$name" proxykv "$plan" -q "$@" ;;
	scores) "$K" scores "$plan" -q --out "$dir/scores.safetensors" "$@" ;;
	continue) "$K" continue "$plan" -q --tokens 16 "$@" ;;
	run) "$K" run "$plan" -q "$@" ;;
	esac
}

# what opens the models
for v in run train collect scores continue; do
	wants 2 'unknown device "nosuch"' verb $v --device nosuch
	wants 2 'unknown device "nosuch"' verb $v --proxy-device nosuch
	wants 2 'unknown instruction set "nosuch"' verb $v --isa nosuch
	wants 2 "no chat template is called 'nosuch'" verb $v --chat-template nosuch
	wants 1 '2 of 2 threads for the proxy' verb $v --threads 2 --proxy-threads 2
	wants 1 'limit 1048576' verb $v --memory 1M
	wants 2 'precision "nosuch"' verb $v --precision nosuch
	wants 2 'the plan has no proxy' verb $v --proxy-threads 1 --targets tiny-pair/target
	wants 1 "$([ $v = run ] && echo '6 failed' || echo 'short was made for 300: --allow-long runs it')" verb $v --set "$short" --set tasks.lengths=400
	wants 0 '' verb $v --set "$short" --set tasks.lengths=400 --allow-long
done
wants 2 'the plan has 2 precisions, one is taken here' verb collect --precision bf16,fp32
wants 2 'the plan has 2 precisions, one is taken here' verb continue --precision bf16,fp32
for v in scores continue; do wants 2 'the plan has 2 targets, one is taken here' verb $v --targets tiny-pair/target,tiny-pair/proxy; done
wants 2 'head-prior needs no proxy' "$K" collect head-prior "$plan" -q --proxy-threads 1
wants 2 '--proxy-device needs --proxy' "$K" ask --context x --question y --proxy-device cpu
wants 2 'kvzip-head needs no proxy' "$K" calibrate kvzip-head --proxy tiny-pair/proxy
wants 2 'iam needs --proxy' "$K" calibrate iam
wants 2 'there is no option --proxy' "$K" bench --proxy tiny-pair/proxy

# shards: the same from a proxy beside the target's prefill; made anew under another precision or template
rm -rf "$dir/shards"
wants 0 '3 shards written' verb collect --threads 2
cp -r "$dir/shards" "$dir/in-turn"; rm -rf "$dir/shards"
wants 0 '3 shards written' verb collect --threads 2 --proxy-threads 1
check "a proxy on threads of its own finds the same, byte for byte" diff -r "$dir/in-turn" "$dir/shards"
wants 0 '0 shards written, 3 were there' verb collect
wants 0 '3 shards written' verb collect --precision fp32
wants 0 '0 shards written, 3 were there' verb collect --precision fp32
wants 0 '3 shards written' verb collect --precision fp32 --chat-template raw
wants 0 '3 shards written' "$K" collect lkv "$plan" -q
wants 0 '0 shards written, 3 were there' "$K" collect lkv "$plan" -q
wants 0 '3 shards written' "$K" collect lkv "$plan" -q --chat-template raw

# options of methods: what cannot be, or changes nothing, is refused when the plan is read, by every verb that runs methods and by a dry run
for v in run "run --dry-run" scores continue; do
	set -- $v; name=$1; shift
	wants 2 'proxykv: option compat = "kvpress" is not one of none|kvzip' verb $name "$@" --set 'methods=[{"method":"proxykv","options":{"compat":"kvpress"}}]'
	wants 2 'snapkv: option pool_size changes nothing with pool=none' verb $name "$@" --set 'methods=[{"method":"snapkv","options":{"pool":"none","pool_size":[5,9]}}]'
	wants 2 'proxykv needs a proxy beside every target' verb $name "$@" --methods proxykv --targets tiny-pair/target
	wants 2 'selfkv: there is no file /nowhere/x (option weights)' verb $name "$@" --set 'methods=[{"method":"selfkv","options":{"weights":"/nowhere/x"}}]'
	wants 2 'names no file (option file)' verb $name "$@" --methods scores@global
done
wants 2 'proxykv needs a proxy' "$K" paper kvzip -q --models runners/model --methods proxykv --dry-run
wants 2 'proxykv needs a proxy' "$K" ask --context "$plan" --question y --methods full,proxykv
wants 2 'there is no file /nowhere/x' "$K" ask --context "$plan" --question y --methods scores:/nowhere/x
wants 2 'snapkv at 0.3 is there twice' "$K" ask --context "$plan" --question y --methods snapkv,snapkv
wants 2 'snapkv at 0.5 is there twice' "$K" ask --context "$plan" --question y --methods snapkv --retained .5,.3,.5
wants 2 'full has no scores' verb scores --method full
wants 2 'scores the whole prompt' verb scores --set 'methods=[{"method":"snapkv","options":{"compat":"kvpress"}}]'
wants 0 '' verb run --db "$dir/maps.db" --set 'methods=[{"method":"kvzip+iam","options":{"chunk":[40,50,60,70,80,90]}}]' # more than four look at one context

# a file that a method of the plan names may be what training is to make
sed "s|\"snapkv\"|{\"method\": \"lkv\", \"options\": {\"weights\": \"$dir/none-yet\"}}|" "$plan" >"$dir/named.json"
wants 2 "there is no file $dir/none-yet" "$K" run "$dir/named.json" -q
wants 0 'shards' "$K" collect lkv "$dir/named.json" -q --chat-template raw

# one file of scores: one protocol, one question where the question is seen
wants 2 'the plan has 2 protocols' verb scores --protocols agnostic,aware
wants 1 'tasks.questions=1' verb scores --protocols aware
wants 0 '' verb scores --protocols aware --set tasks.questions=1
wants 2 'the plan has no such method' verb continue --against nosuch

# offloading is a GPU's: refused where a CPU is named; with "auto" a line says that there is none
for v in run train collect scores continue; do wants 2 'kv_offload moves a GPU' verb $v --device cpu --kv-offload; done
wants 2 'kv_offload moves a GPU' verb run --device cpu --set kv_offload=true
wants 2 'kv_offload moves a GPU' verb run --device cpu --proxy-device cpu --kv-offload
for v in paper\ kvzip "ask --context x --question y" doctor "calibrate kvzip-head" bench; do
	wants 2 'device "cpu" has them there' "$K" $v --device cpu --kv-offload
done
if ! "$K" doctor --device cuda >/dev/null 2>&1; then
	for v in run train collect scores continue; do wants 0 'nothing is offloaded: device "auto" is the CPU here' verb $v --kv-offload; done
	wants 0 'nothing is offloaded' "$K" ask --context "$plan" --question y --kv-offload --proxy tiny-pair/proxy --device cpu --proxy-device auto
	# the CPU in a GPU's place is told, on one line and with the reason
	for v in "collect lkv" "train proxykv" scores continue; do
		wants 0 'device cpu: ' "$K" $v "$plan" $([[ $v == scores ]] && echo --out "$dir/scores.safetensors") $([[ $v == continue ]] && echo --tokens 16) --chat-template raw
		check "$v: on one line" bash -c '[ "$(grep -c "^device cpu: ..*" "$1")" = 1 ]' - "$dir/err"
	done
	for how in --dry-run ''; do wants 0 'device cpu: ' "$K" run "$plan" --db "$dir/told.db" $how; done
	wants 0 'device cpu: ' "$K" ask --context "$plan" --question y
	wants 0 '' "$K" ask --context "$plan" --question y --device cpu
	check "a CPU that was asked for is not told" bash -c '! grep -q "^device cpu" "$1"' - "$dir/err"
	wants 1 'device "cuda:0"' "$K" ask --context "$plan" --question y --device cuda:0
else echo 'skip - --kv-offload with device auto on a CPU: there is a GPU here'; fi

# what changes nothing
for v in "run training" "paper training" "train title methods retained protocols timing report" \
	"collect title methods retained protocols timing db report" "scores title timing training db report max-new-tokens" \
	"continue title protocols timing training db report max-new-tokens"; do
	set -- $v; name=$1; shift
	"$K" "$name" --help >"$dir/help" </dev/null
	for key; do
		wants 2 "the plan's key ${key//-/_} changes nothing here" "$K" "$name" "$plan" --$key x
		wants 2 "changes nothing here" "$K" "$name" "$plan" --set "${key//-/_}.x=1"
		check "$name --help leaves $key out" bash -c '! grep -qE "^  $1( |$)" "$2"' - "${key//-/_}" "$dir/help"
	done
done
wants 2 "key tasks.contexts changes nothing" verb train --set tasks.contexts=3
wants 2 'contexts and eval are both 0: there is nothing to collect' verb collect --set training.contexts=0 --set training.eval=0
wants 2 "key training.runs changes nothing" verb collect --set 'training.runs=[{}]'
for v in "collect lkv" "train lkv,kv-mlp" "collect head-prior"; do
	wants 2 "key training.features changes nothing here: no features for ${v#* }" "$K" $v "$plan" -q --set training.features=all
done
sed 's|"training": {|&"features": "all", |' "$plan" >"$dir/features.json" # said in a plan it may be for other kinds
wants 0 '0 shards written, 3 were there' "$K" collect lkv "$dir/features.json" -q --chat-template raw

# the training object
wants 2 'nothing called "proxykw"' verb train --set 'training.runs={"proxykw":[{}]}'
wants 2 'shards wants text' verb train --set training.shards=5
wants 2 'contexts wants a whole number from 0 to 1000000000' verb collect --set training.contexts=1e12
wants 0 '3 shards written' verb collect --seed 2147483647 --set "training.shards=$dir/shards-of-the-last-seed"
check "a paper's report is written" bash -c '"$1" paper kvzip -q --models runners/model --db "$2/p.db" --report "$2/p.html" --set tasks.contexts=1 >"$2/out" 2>"$2/err" && grep -q "</html>" "$2/p.html"' - "$K" "$dir"
