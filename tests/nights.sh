#!/bin/bash
# Nights as cron runs them, with true faults: the first (it becomes the baseline), one of the same commit, one in which a method's
# prefill really takes longer, one in which a method really loses entries (tests/plant/fault.c). Prints what each said and its exit
# code, and the database each left.
#
#   tests/nights.sh [-s METHOD:SHARE] [-l METHOD:SHARE] [-g "GATE OPTIONS"] [PLAN] FOLDER
#       default: -s snapkv:.15 -l keydiff:.05 harness/night.json
#
# Exit code: 0 where the four nights ended with 4, 0, 3, 3 and the alerts name the methods; else 1.
cd "$(dirname "$0")/.."
slow=snapkv:.15 lost=keydiff:.05 gate=
while getopts s:l:g: o; do
	case $o in s) slow=$OPTARG ;; l) lost=$OPTARG ;; g) gate=$OPTARG ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
plan=harness/night.json
[ $# -lt 2 ] || { plan=$1; shift; }
[ $# -eq 1 ] || { echo "usage: tests/nights.sh [-s METHOD:SHARE] [-l METHOD:SHARE] [-g \"GATE OPTIONS\"] [PLAN] FOLDER" >&2; exit 2; }
folder=$1 faulty=${BUILD:-build/release}/kvbench-faulty
[ -x "$faulty" ] || { echo "skip - nights: $faulty is not built (make tests-built)"; exit 0; }
export KVBENCH=$PWD/$faulty
[ "${faulty:0:1}" != / ] || KVBENCH=$faulty
failed=0
night() { # NAME, wanted code, pattern, environment...
	local name=$1 code=$2 pattern=$3 rc said; shift 3
	[ -z "$(ls "$folder" 2>/dev/null)" ] || sleep 1 # a night is named by its second
	echo "\$ harness/nightly.sh $plan $folder; echo \"exit code \$?\"          # $name"
	said=$(env "$@" harness/nightly.sh -g "$gate" "$plan" "$folder"); rc=$?
	printf '%s\nexit code %d\n\n' "$said" "$rc"
	if [ "$rc" -eq "$code" ] && grep -qE -- "$pattern" <<<"$said"; then echo "ok - nights: $name: exit code $code"
	else echo "not ok - nights: $name: wanted exit code $code and /$pattern/"; failed=1; fi
}
night 'the first' 4 'there is no baseline main'
"$KVBENCH" baseline set main "$(ls -d "$folder"/night-*.db | tail -1)" --why 'first night' || exit 1
night 'the same commit' 0 '^pass: '
night "planted: prefill for $slow longer" 3 "^REGRESSION ttft ratio: .* ${slow%:*} r = " KVB_FAULT_SLOW="$slow"
night "planted: entries lost by $lost" 3 "^REGRESSION accuracy( pooled)?: .*${lost%:*}" KVB_FAULT_LOST="$lost"
exit $failed
