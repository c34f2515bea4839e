#!/bin/bash
# The whole program on an emulated GPU: what it stores says so; a device that is lost is found again by a new process, which goes on where the old one was; one
# that is lost again and again ends the sweep with a reason. Called by `make test` and `make cudaemu`, which say where the build is (KVB_EMU).
cd "$(dirname "$0")/../.."
K=${KVB_EMU:?run it through make cudaemu}/kvbench
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
cat >"$dir/plan.json" <<'J'
{"targets": ["tiny-pair/target"], "models": "runners/model", "methods": ["snapkv"], "retained": [0.3], "device": "cuda", "protocols": ["agnostic"],
 "tasks": [{"name": "niah-multikey", "lengths": [128], "contexts": 2, "questions": 2}], "timing": {"enabled": false}}
J
run() { # NAME CODE 'settings of the emulation' options...
	local name=$1 code=$2 settings=$3 rc; shift 3
	env $settings "$K" run "$dir/${plan:-plan}.json" --db "$dir/$name.db" -q "$@" >"$dir/$name.out" 2>"$dir/$name.err"; rc=$?
	if [ $rc -eq "$code" ]; then echo "ok - $name: exit code $code"; else echo "not ok - $name: exit code $rc, not $code"; cat "$dir/$name.err"; fi
}
says() { # NAME PATTERN: on stderr or stdout
	if grep -qE "$2" "$dir/$1.err" "$dir/$1.out"; then echo "ok - $1: says /$2/"; else echo "not ok - $1: does not say /$2/"; cat "$dir/$1.err"; fi
}
has() { # NAME PATTERN: in the table as JSON
	if "$K" export "$dir/$1.db" --format json | grep -qE "$2"; then echo "ok - $1: stores $2"; else echo "not ok - $1: does not store $2"; "$K" export "$dir/$1.db" --format json | head -40; fi
}
same() { # NAME NAME: equal tables
	if cmp -s <("$K" export "$dir/$1.db" --format json) <("$K" export "$dir/$2.db" --format json); then echo "ok - $1 has the table of $2"
	else echo "not ok - $1 has not the table of $2"; diff <("$K" export "$dir/$2.db" --format json) <("$K" export "$dir/$1.db" --format json) | head -20; fi
}

run whole 0 ''
has whole '"topology": ?"emulated-gpu"'
run again 0 ''
same again whole

# one sticky error in the middle: nothing is missing in the end, and it is one run
run once 0 "CUEMU_FAIL=launch:700:700:sticky,once=$dir/fired"
says once 'emulated:0 is lost to this process: the run goes on in a new one'
says once '0 of them present before; now 12 answered .* 0 failed'
same once whole

# a sticky error at the same launch of every process: full, then random, and no more
run always 1 'CUEMU_FAIL=launch:40:700:sticky'
says always 'twice in a row by the same error \(cudaErrorIllegalAddress\): by full, then by random'
says always 'now 0 answered .* 4 failed'
run always 0 ''
same always whole

# lost while the first of two models is loaded: its cells say so, the other is answered by a new process; the same command tries the first again
both='--precision bf16,fp32'
run both 0 '' $both
run loading 1 "CUEMU_FAIL=cudaMemcpy:9:700:sticky,once=$dir/loaded" $both
says loading 'emulated:0 is lost to this process: the run goes on in a new one'
says loading '24 samples, 0 of them present before; now 12 answered .* 12 failed'
says loading '4 of 4, not run: the device was lost while the model was loaded: .*cudaErrorIllegalAddress'
run loading 0 '' $both
same loading both

# lost while either is loaded: twice in a row
run never 1 'CUEMU_FAIL=cudaMemcpy:9:700:sticky' $both
says never 'given up: the device was lost twice in a row by the same error \(cudaErrorIllegalAddress\): by loading tiny-pair/target \(bf16\), then by loading tiny-pair/target \(fp32\)'
says never 'now 0 answered .* 24 failed'
run never 0 '' $both
same never both

# with a proxy the model's cells are the same ones: its names are known though it was never loaded
sed 's|"targets": \["tiny-pair/target"\]|"pairs": [{"target": "tiny-pair/target", "proxy": "tiny-pair/proxy"}]|' "$dir/plan.json" >"$dir/pair.json"
plan=pair run pair 1 "CUEMU_FAIL=cudaMemcpy:9:700:sticky,once=$dir/paired"
says pair '12 samples, .* now 0 answered .* 12 failed'
plan=pair run pair 0 ''
says pair '12 samples, 0 of them present before; now 12 answered'
says pair '^3 of 3 cells complete'

# memory: the device is full while contexts are answered
run offload 0 '' --kv-offload
has offload '"topology": ?"emulated-gpu\+offload"'

# attention by cuDNN: said in the topology, of answers as with our kernels; where the library is not there it is refused, not replaced
run cudnn 0 '' --attention cudnn
has cudnn '"topology": ?"emulated-gpu\+cudnn"'
run cudnn-absent 1 CUEMU_CUDNN=0 --attention cudnn
says cudnn-absent 'attention "cudnn": cuDNN 9 was not found'
