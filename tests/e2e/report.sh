#!/bin/bash
# The report's file from the command line: whole, closed to the network, small enough; two databases and one run side by side; public;
# any table of it as csv, json, md, latex. Browser checks: report_chromium.sh.
cd "$(dirname "$0")/../.."
K=${KVBENCH:-./kvbench}
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
check() { local name=$1; shift; if "$@" >"$dir/said" 2>&1; then echo "ok - $name"; else echo "not ok - $name"; tail -5 "$dir/said"; fi; }
small() { # DB [options]: a plan of two tasks
	local db=$1; shift
	"$K" run harness/demo.json --models runners/model --db "$db" --report "$dir/ignored.html" --set tasks.lengths=512 --set tasks.contexts=2 \
		--methods snapkv,kvzip --retained .3,1 --set timing.lengths=512 --quiet "$@" >/dev/null
}
check "a database" small "$dir/a.db"
check "another, in another precision" small "$dir/b.db" --precision fp32

check "report prints the file's name" bash -c '[ "$("$0" report "$1/a.db" --history none)" = "$1/a.html" ]' "$K" "$dir"
check "nothing in it comes from elsewhere" bash -c '! grep -qE "(src|href)=.?(https?:|//|file:)|url\(|@import" "$0/a.html"' "$dir"
check "it is below 5 MB" [ "$(stat -c %s "$dir/a.html")" -lt 5000000 ]
for page in summary scores accuracy pareto time cost memory needles budgets samples settings; do
	check "page $page is there" grep -q "<section class=\"page\" id=\"$page\"" "$dir/a.html"
done
cp "$dir/a.html" "$dir/first.html"
"$K" report "$dir/a.db" --history none >/dev/null
check "the same rows give the same bytes" cmp -s "$dir/a.html" "$dir/first.html"

"$K" report "$dir/a.db" "$dir/b.db" -o "$dir/two.html" >/dev/null
check "two databases side by side" grep -q '<section class="page" id="differences"' "$dir/two.html"
check "what differs is named" grep -q '>precision<' "$dir/two.html"
run=$(sed -n 's/.*<td>run<\/td><td>\([0-9a-f]\{32\}\)<.*/\1/p' "$dir/a.html" | head -1)
check "a run of a database by its first digits" "$K" report "$dir/a.db:${run:0:8}" -o "$dir/run.html"
check "an unknown run is refused" bash -c '! "$0" report "$1/a.db:ffffffffffff" -o "$1/x.html" && [ ! -e "$1/x.html" ]' "$K" "$dir"

host=$(hostname)
"$K" report "$dir/a.db" --public -o "$dir/public.html" >/dev/null
check "a public page tells neither host nor folder" bash -c '! grep -qF "$0" "$1" && ! grep -qwF "$2" "$1"' "$dir" "$dir/public.html" "$host"

check "every column of the export has a name of its own" bash -c '[ -z "$("$0" export "$1/a.db" --format csv | head -1 | tr , "\n" | sort | uniq -d; "$0" export "$1/a.db" --format csv | head -1 | grep -o "(null)")" ]' "$K" "$dir"
check "a table as csv" bash -c '"$0" export "$1/a.db" --table loss-0 | head -1 | grep -q "^method,loss_points_0.3,"' "$K" "$dir"
check "a table as json" bash -c '"$0" export "$1/a.db" --table times --format json | grep -q "\"ttft_ns\":"' "$K" "$dir"
check "a table as latex" bash -c '"$0" export "$1/a.db" --table accuracy-0 --format latex | grep -q "begin{tabular}"' "$K" "$dir"
check "a table of a comparison" bash -c '"$0" export "$1/a.db" "$1/b.db" --table differences --format md | grep -q "^| kvzip |"' "$K" "$dir"
check "unknown tables are told which there are" bash -c '! "$0" export "$1/a.db" --table nonsense 2>"$1/err" && grep -q "loss-0" "$1/err"' "$K" "$dir"
