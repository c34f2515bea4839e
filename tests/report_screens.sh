#!/bin/bash
# Pictures of every page of a report, light and dark, 1280 and 400 pixels wide, and a check of each: no message on the console,
# nothing wider than the window, no texts that cover each other or leave their chart (tests/report_check.js).
#
#   tests/report_screens.sh [REPORT.html...]      default: the synthetic report of tests/unit/report
#
# Pictures go to OUT (default build/screens) as REPORT-PAGE-WIDTH-THEME.png, for the eye. Skips plainly without Chromium.
# CHECK=1: only the check. Exit code: 0 nothing found, 1 something.
cd "$(dirname "$0")/.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "skip - screens of the report: no chromium"; exit 0; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
out=${OUT:-build/screens}
mkdir -p "$out"
if [ $# -eq 0 ]; then
	maker=${BUILD:-build/release}/tests/report/test_report
	[ -x "$maker" ] || { echo "not ok - screens of the report: $maker is not built"; exit 1; }
	KVB_PAGE=$work/synthetic.html "$maker" || exit 1
	set -- "$work/synthetic.html"
fi
chrome() { timeout 180 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --enable-logging=stderr --log-level=0 "$@"; }
failed=0
say() { # STATUS NAME [file with details]
	if [ "$1" -eq 0 ]; then echo "ok - $2"; else echo "not ok - $2"; [ -z "${3:-}" ] || sed 's/ ¶ /\n    /g' "$3"; failed=1; fi
}
for page in "$@"; do
	name=$(basename "$page" .html)
	{ sed -e 's|<meta http-equiv="Content-Security-Policy"[^>]*>||' -e 's|</body></html>||' "$page"; echo '<script>'; cat tests/report_check.js; echo '</script></body></html>'; } >"$work/check.html"
	for width in 1280 400; do # in a frame, since a window is never narrower than 500
		echo "<title>no verdict</title><iframe src=\"check.html\" width=\"$width\" height=\"900\"></iframe><script>onmessage = function (e) { document.title = e.data }</script>" >"$work/frame.html"
		chrome --window-size=1400,1000 --virtual-time-budget=20000 --dump-dom "file://$work/frame.html" >"$work/dom" 2>"$work/log"
		grep -oE '<title>[^<]*' "$work/dom" | head -1 | sed 's/<title>//' >"$work/verdict"
		grep -q '^looked at' "$work/verdict"; say $? "$name at $width pixels: $(head -c 60 "$work/verdict")" "$work/verdict"
		! grep CONSOLE "$work/log" >"$work/console"; say $? "$name at $width pixels: no message on the console" "$work/console"
	done
	[ -z "${CHECK:-}" ] || continue
	for id in $(grep -oE '<section class="page" id="[a-z]+"' "$page" | sed 's/.*id="//; s/"//'); do
		for width in 1280 400; do
			for theme in light dark; do
				[ $theme = dark ] && how=--blink-settings=preferredColorScheme=0 || how=--blink-settings=preferredColorScheme=1
				shot=$out/$name-$id-$width-$theme.png
				chrome --window-size=$width,${HEIGHT:-1400} $how --screenshot="$shot" "file://$(realpath "$page")#$id" 2>&1 | grep CONSOLE
				[ -s "$shot" ] || say 1 "$shot was not drawn"
			done
		done
	done
	say 0 "$name: pictures in $out"
done
exit $failed
