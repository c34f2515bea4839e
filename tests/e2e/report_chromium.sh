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
check 'page loads' grep -q '<h2 id="h-summary"' "$work/dom"
check 'its script ran (the samples are counted)' grep -qE '>10800 of 10800 samples</span>' "$work/dom"
check 'no message on the console' bash -c '! grep "CONSOLE" "$0"' "$work/log"

# Another script is refused by the policy: hostile text that got through the escaping would still not run. The complaint about
# it on the console also shows that a complaint above would have been seen.
sed 's|</body>|<script>document.title="hijacked"</script></body>|' "$page" >"$work/hijack.html"
chrome --enable-logging=stderr --log-level=0 --virtual-time-budget=2000 --dump-dom "file://$work/hijack.html" >"$work/dom" 2>"$work/log"
check 'a foreign script is refused' bash -c 'grep -q "<title>" "$0/dom" && ! grep -q "<title>hijacked" "$0/dom" && grep -q CONSOLE "$0/log"' "$work"

# Without the policy, a hand at the controls: hide a series, sort a table downwards, go to a cell's samples, filter them, walk with
# the keyboard; and 50,000 samples: a filter and a scroll take less than the blink of an eye.
cat >"$work/hand.js" <<'END'
(function () {
var D = document, said = [];
function key(where, k) { where.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true, cancelable: true})) }
function filter(name, value) { D.querySelector('#filter [name=' + name + ']').value = value; D.getElementById('filter').dispatchEvent(new Event('input')) }
var box = D.querySelector('.leg input');
box.click();
said.push(Array.from(D.querySelectorAll('.s.' + box.dataset.v)).every(function (g) { return g.classList.contains('off') }) ? 'hides' : 'shows');
var head = D.querySelector('table.sort th:last-child button');
head.click(); head.click();
said.push(head.parentNode.getAttribute('aria-sort'));
key(D.body, ']');
setTimeout(function () {
	said.push(D.querySelector('.page.on').id === 'scores' ? 'turns' : 'stays');
	location.hash = D.querySelector('td a[href^="#s-"]').getAttribute('href');
	setTimeout(function () {
		var all = +D.getElementById('shown').textContent.split(' ')[0];
		said.push(D.querySelector('.page.on').id === 'samples' && all === 20 ? 'leads' : 'misleads');
		var list = D.getElementById('list');
		key(list, 'End');
		said.push(D.querySelector('[aria-selected=true]').getAttribute('aria-posinset') === '20' && D.querySelector('#one h3') ? 'walks' : 'stumbles');
		['p', 'v', 'r'].forEach(function (n) { filter(n, '') });
		D.querySelector('#filter input[value="4"]').click();
		setTimeout(function () {
			said.push(/^8 of/.test(D.getElementById('shown').textContent) && D.querySelector('#rows .m').textContent === 'empty' || D.getElementById('shown').textContent);
			D.title = said.join(' ');
		}, 300);
	}, 300);
}, 300);
})();
END
hand() { # PAGE SCRIPT: the DOM afterwards
	{ sed -e 's|<meta http-equiv="Content-Security-Policy"[^>]*>||' -e 's|</body></html>||' "$1"; echo '<script>'; cat "$2"; echo '</script></body></html>'; } >"$work/hand.html"
	chrome --dump-dom --virtual-time-budget=8000 "file://$work/hand.html" >"$work/dom" 2>/dev/null
}
hand "$page" "$work/hand.js"
title=$(grep -oE '<title>[^<]*' "$work/dom" | head -1)
check "legend, sorting, pages, links, keyboard and filter work (${title#<title>})" [ "$title" = '<title>hides descending turns leads walks true' ]

# the same page with its rows five times over: 54,000 samples
cat >"$work/many.js" <<'END'
var n = JSON.parse(document.getElementById('sample-data').textContent).r.length / 6, list = document.getElementById('list'), slowest = 0;
function timed(f) { var t = performance.now(); f(); slowest = Math.max(slowest, performance.now() - t) }
location.hash = 'samples';
setTimeout(function () {
	var form = document.getElementById('filter');
	for (var i = 1; i < 20; i++) timed(function () { list.scrollTop = i * n * 2; list.dispatchEvent(new Event('scroll')); list.getBoundingClientRect() });
	form.elements.q.value = 'door';
	form.dispatchEvent(new Event('input'));
	setTimeout(function () {
		document.title = n + ' rows, ' + document.getElementById('rows').children.length + ' drawn, ' + (slowest < 50 ? 'fast' : 'slow ' + slowest);
	}, 1000);
}, 300);
END
sed -E 's/^("r":\[)(.*)(\],)$/\1\2,\2,\2,\2,\2\3/' "$page" >"$work/many.html"
hand "$work/many.html" "$work/many.js"
check "54,000 samples scroll and filter ($(grep -oE '<title>[^<]*' "$work/dom" | head -1 | sed 's/<title>//'))" \
	grep -qE '<title>54000 rows, ([1-9]|[1-5][0-9]) drawn, fast' "$work/dom"

CHECK=1 OUT=$work tests/report_screens.sh "$page" >"$work/screens" || failed=1
cat "$work/screens"

chrome --screenshot="$work/light.png" "file://$page" 2>/dev/null >&2
chrome --blink-settings=preferredColorScheme=0 --screenshot="$work/dark.png" "file://$page" 2>/dev/null >&2
check 'draws, light and dark' bash -c '[ -s "$0/light.png" ] && [ -s "$0/dark.png" ] && ! cmp -s "$0/light.png" "$0/dark.png"' "$work"
exit $failed
