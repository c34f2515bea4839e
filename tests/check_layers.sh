#!/bin/bash
# The lines of the house: who may include whom (README, "How it is built"). Each broken line is one failure.
cd "$(dirname "$0")/.."
rule() { # NAME, pattern that must not appear, files...
	local name=$1 pattern=$2 hits; shift 2
	hits=$(grep -nE "$pattern" "$@" 2>/dev/null)
	if [ -z "$hits" ]; then echo "ok - $name"; else echo "not ok - $name"; echo "$hits"; fi
}
mapfile -t above < <(find tasks results report -name '*.[ch]')
mapfile -t runners < <(find runners -name '*.[ch]' -o -name '*.cu')
mapfile -t methods < <(find runners/methods -name '*.[ch]')
mapfile -t mapper < <(find runners/mapper -name '*.[ch]')
mapfile -t harness < <(find harness -name '*.[ch]')
mapfile -t no_store < <(find harness runners tasks results report -name '*.[ch]' ! -path 'results/store*')
mapfile -t no_hub < <(find harness runners tasks results report -name '*.[ch]' ! -name 'hub*' ! -name 'remote*')
mapfile -t no_cuda < <(find harness runners tasks results report -name '*.[ch]' ! -path 'runners/device/cuda/*')
mapfile -t base < <(find harness/base -name '*.[ch]')
rule 'tasks, results, report never include runners' '#include "runners/' "${above[@]}"
rule 'runners never include results, tasks, report' '#include "(results|tasks|report)/' "${runners[@]}"
rule 'runners take only harness/base from the harness' '#include "harness/[^b]' "${runners[@]}" "${above[@]}"
rule 'the harness sees runners through runner.h only' '#include "runners/(model|device|forward|methods|proxykv|lkv)/' "${harness[@]}"
rule 'the mapper knows lists of steps, no device' '#include "runners/(device/([^s]|s[^t])|forward|methods|proxykv)' "${mapper[@]}"
rule 'methods never see CUDA or a CPU kernel' '#include "runners/device/(cpu|cuda)/' "${methods[@]}"
rule 'only results/store*.c includes sqlite3.h' '#include <sqlite3.h>' "${no_store[@]}"
rule 'only the hub client includes curl' '#include <curl/' "${no_hub[@]}"
rule 'only device/cuda includes CUDA headers' '#include <(cuda|cublas)' "${no_cuda[@]}"
rule 'harness/base is a leaf' '#include "(harness/[^b]|runners|tasks|results|report)' "${base[@]}"
rule 'only main and option parsing end the process' '(^|[^_a-z])(exit|abort|die)\(' $(find runners tasks results report -name '*.[ch]')
