#!/bin/bash
# `kvbench fetch` as a user types it, against tests/hubserver: exit codes, what goes where, offline, no token anywhere.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
S=${HUBSERVER:-${BUILD:-build/release}/hubserver}
[ -x "$S" ] || { echo "skip - fetch: $S is not built (make tests-built)"; exit 0; }
dir=$(mktemp -d)
"$S" >"$dir/endpoint" & server=$!
trap 'kill $server; rm -rf "$dir"' EXIT
for _ in $(seq 100); do [ -s "$dir/endpoint" ] && break; sleep .05; done
endpoint=$(cat "$dir/endpoint")
export HF_ENDPOINT=$endpoint HF_HOME=$dir/hf HF_TOKEN=hf_secretsecret KVBENCH_DATA=$dir/data KVBENCH_MIRROR=$endpoint
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HUB_OFFLINE TRANSFORMERS_OFFLINE http_proxy HTTP_PROXY all_proxy ALL_PROXY
wants() { # CODE, pattern on stderr, command...
	local code=$1 pattern=$2 rc; shift 2
	"$@" >"$dir/out" 2>"$dir/err" </dev/null; rc=$?
	cat "$dir/out" "$dir/err" >>"$dir/all"
	if [ "$rc" -eq "$code" ] && { [ -z "$pattern" ] || grep -qE -- "$pattern" "$dir/err"; }; then echo "ok - $code: ${*:2:6}"
	else echo "not ok - wanted $code and /$pattern/, got $rc: $*"; cat "$dir/err"; fi
}
wants 2 'did you mean "scbench"' "$K" fetch scbnech
wants 2 'ORG/NAME is wanted' "$K" fetch model
wants 2 'takes no name' "$K" fetch ruler org/x
wants 2 'is pinned' "$K" fetch squad --revision v1
wants 1 'offline.*kvbench fetch model org/tiny' "$K" fetch model org/tiny --offline
wants 1 'offline.*ruler/constants.py.*kvbench fetch ruler' "$K" fetch ruler --offline
wants 0 '' "$K" fetch model org/tiny
[ -e "$(cat "$dir/out")/config.json" ] && echo "ok - the snapshot's folder is printed" || echo "not ok - the snapshot's folder is printed"
wants 0 '' "$K" fetch model org/tiny --offline
wants 0 '' "$K" fetch dataset org/data --files 'data/*.jsonl,empty.txt' -q
[ ! -s "$dir/err" ] && echo "ok - -q is quiet" || echo "not ok - -q is quiet"
wants 1 'accept the licence' "$K" fetch model gated/model
wants 1 'HTTP 401' "$K" fetch squad
wants 0 '' "$K" fetch list
grep -q 'ruler/squad.json.*missing.*4370528' "$dir/out" && echo "ok - list says what is missing" || echo "not ok - list says what is missing"
grep -q secretsecret "$dir/all" && echo "not ok - the token was printed" || echo "ok - the token was not printed"
grep -rq secretsecret "$dir/hf" "$dir/data" 2>/dev/null && echo "not ok - the token was stored" || echo "ok - the token was not stored"
