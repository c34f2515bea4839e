#!/bin/bash
# The report in a real browser: it loads, its script runs under its own policy, nothing is complained about, nothing is fetched.
# Uses the synthetic page of tests/unit/report/test_report; a page or database of one's own: KVB_REPORT=FILE.html.
cd "$(dirname "$0")/../.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
[ -n "$browser" ] || { echo "skip - report in Chromium: no chromium"; exit 0; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
page=$work/page.html
if [ -n "${KVB_REPORT:-}" ]; then cp "$KVB_REPORT" "$page"; else
	maker=${BUILD:-build/release}/tests/report/test_report
	[ -x "$maker" ] || { echo "not ok - report in Chromium: $maker is not built"; exit 1; }
	KVB_PAGE=$page "$maker" || { echo "not ok - report in Chromium: no page"; exit 1; }
fi
chrome() { timeout 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --window-size=1100,1600 "$@"; }
check() { # NAME, command...
	local name=$1; shift
	if "$@"; then echo "ok - report in Chromium: $name"; else echo "not ok - report in Chromium: $name"; failed=1; fi
}
failed=0

chrome --enable-logging=stderr --log-level=0 --virtual-time-budget=3000 --dump-dom "file://$page" >"$work/dom" 2>"$work/log"
check 'page loads' grep -q '<h2 id="sec-summary">' "$work/dom"
check 'its script ran (the sample filter shows itself and counts)' grep -qE 'matching rows shown</span>' "$work/dom"
check 'no message on the console' bash -c '! grep "CONSOLE" "$0"' "$work/log"

# Another script is refused by the policy: hostile text that got through the escaping would still not run. The complaint about
# it on the console also shows that a complaint above would have been seen.
sed 's|</body>|<script>document.title="hijacked"</script></body>|' "$page" >"$work/hijack.html"
chrome --enable-logging=stderr --log-level=0 --virtual-time-budget=2000 --dump-dom "file://$work/hijack.html" >"$work/dom" 2>"$work/log"
check 'a foreign script is refused' bash -c 'grep -q "<title>" "$0/dom" && ! grep -q "<title>hijacked" "$0/dom" && grep -q CONSOLE "$0/log"' "$work"

# Without the policy, a hand at the controls: hide a series, sort a table downwards, filter the samples.
cat >"$work/hand.js" <<'END'
var D = document, box = D.querySelector('.leg input'), head = D.querySelector('table.sort th:last-child button'), said = [];
box.click();
said.push(Array.from(D.querySelectorAll('.s.' + box.dataset.v)).every(function (g) { return getComputedStyle(g).display === 'none' }) ? 'hides' : 'shows');
head.click(); head.click();
said.push(head.parentNode.getAttribute('aria-sort'));
var empty = D.querySelector('#filter input[value=empty]');
empty.click();
said.push(Array.from(D.querySelectorAll('#samples tbody tr')).every(function (r) { return r.hidden !== r.classList.contains('empty') }) ? 'filters' : 'lets through');
D.title = said.join(' ');
END
{ sed -e 's|<meta http-equiv="Content-Security-Policy"[^>]*>||' -e 's|</body></html>||' "$page"; echo '<script>'; cat "$work/hand.js"; echo '</script></body></html>'; } >"$work/hand.html"
chrome --dump-dom --virtual-time-budget=3000 "file://$work/hand.html" >"$work/dom" 2>/dev/null
check 'legend, sorting and filter work' grep -q '<title>hides descending filters</title>' "$work/dom"

chrome --screenshot="$work/light.png" "file://$page" 2>/dev/null >&2
chrome --blink-settings=preferredColorScheme=0 --screenshot="$work/dark.png" "file://$page" 2>/dev/null >&2
check 'draws, light and dark' bash -c '[ -s "$0/light.png" ] && [ -s "$0/dark.png" ] && ! cmp -s "$0/light.png" "$0/dark.png"' "$work"
exit $failed
