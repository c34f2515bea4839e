#!/bin/bash
# A night as cron or a systemd timer runs it: run the plan into a database of its own, gate it, report it, keep the last n.
#
#   nightly.sh [-b BASELINE] [-k KEEP] [-g "GATE OPTIONS"] PLAN FOLDER
#
# FOLDER holds night-TIME.db, .txt (what the gate said) and .html, and history.db (baselines, figures of all nights). Exit code: the
# gate's (0 pass, 1 error, 2 usage, 3 regression, 4 incomplete or no baseline), or 75 where a night is at work already or was
# interrupted; started again it goes on with that one. Prints what the gate said: cron mails it. KVBENCH names the program.
set -uo pipefail
baseline=main keep=14 gate_options=
while getopts b:k:g: o; do
	case $o in b) baseline=$OPTARG ;; k) keep=$OPTARG ;; g) gate_options=$OPTARG ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
[ $# -eq 2 ] || { echo "usage: nightly.sh [-b BASELINE] [-k KEEP] [-g \"GATE OPTIONS\"] PLAN FOLDER" >&2; exit 2; }
[[ $keep =~ ^[1-9][0-9]*$ ]] || { echo "nightly.sh: -k wants a number from 1, not \"$keep\"" >&2; exit 2; }
plan=$1 folder=$2 K=${KVBENCH:-$(dirname "$0")/../kvbench}
mkdir -p "$folder" || exit 1
exec 9>"$folder/night.lock"
flock -n 9 || { echo "nightly.sh: a night is at work in $folder" >&2; exit 75; }

# one that was interrupted within the last 20 hours is finished first
name=night-$(date -u +%Y%m%dT%H%M%SZ)
[ -z "$(find "$folder" -maxdepth 1 -name unfinished -mmin -1200)" ] || name=$(cat "$folder/unfinished")
echo "$name" >"$folder/unfinished" || exit 1
night=$folder/$name
"$K" run "$plan" --db "$night.db" --quiet >/dev/null 2>"$night.log" 9>&-; rc=$?
case $rc in
0 | 1) ;; # 1: some cells failed; the gate says which
75) cat "$night.log" >&2; exit 75 ;;
*) cat "$night.log" >&2; rm -f "$folder/unfinished" "$night.log"; exit "$rc" ;;
esac
# shellcheck disable=SC2086
"$K" gate "$night.db" --baseline "$baseline" --history "$folder/history.db" --record $gate_options >"$night.txt" 2>>"$night.log" 9>&-; verdict=$?
cat "$night.txt"
[ $verdict -ne 1 ] || cat "$night.log" >&2
if [ -s "$night.db" ]; then
	"$K" report "$night.db" --out "$night.html" >/dev/null 2>>"$night.log" 9>&- || { cat "$night.log" >&2; [ $verdict -ne 0 ] || verdict=1; }
fi
rm -f "$folder/unfinished"

# the newest $keep nights stay, and what a baseline ever named
kept=$("$K" baseline list --history "$folder/history.db" --paths 2>/dev/null 9>&-)
find "$folder" -maxdepth 1 -name 'night-*.db' -printf '%f\n' | sort -r | tail -n +$((keep + 1)) | while read -r old; do
	grep -qxF "$old" <<<"$kept" && continue
	rm -f "$folder/$old" "$folder/${old%.db}".{txt,html,log}
done
exit $verdict
