// report_check.js: walks through every page of a report in a browser and says what is wrong with its looks: wider than the window, a
// text that runs out of its chart, a chart that runs out of its row or is too small to read, texts of a chart or tools of a row that cover each other. tests/report_screens.sh and
// tests/e2e/report_chromium.sh put it behind a copy of the page without its policy; the verdict becomes the document's title, and that of the frame around it.
(function () {
'use strict';
var wrong = [], pages = Array.from(document.querySelectorAll('section.page')), done = 0, texts_seen = 0;
function box(e) { return e.getBoundingClientRect() }
function seen(r) { return r.width > 0 && r.height > 0 }
function covered(a, b) { // share of the smaller box that the other covers
	var w = Math.min(a.right, b.right) - Math.max(a.left, b.left), h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
	return w > 0 && h > 0 ? w * h / Math.min(a.width * a.height, b.width * b.height) : 0;
}
function say(page, what, e, f) {
	wrong.push(page.id + ': ' + what + ': ' + [e, f].filter(Boolean).map(function (x) { return (x.textContent || x.tagName).trim().slice(0, 40) }).join(' | '));
}
function pairs(page, what, list, most) {
	var boxes = list.map(box);
	for (var i = 0; i < list.length; i++)
		for (var k = i + 1; k < list.length; k++)
			if (seen(boxes[i]) && seen(boxes[k]) && covered(boxes[i], boxes[k]) > most) return say(page, what, list[i], list[k]);
}
function look(page) {
	if (document.documentElement.scrollWidth > innerWidth + 1)
		say(page, 'wider than the window (' + document.documentElement.scrollWidth + ' > ' + innerWidth + ')');
	page.querySelectorAll('details').forEach(function (d) { d.open = true });
	if (document.documentElement.scrollWidth > innerWidth + 1)
		say(page, 'wider than the window when all is open (' + document.documentElement.scrollWidth + ' > ' + innerWidth + ')');
	page.querySelectorAll('svg[role=img]').forEach(function (svg) {
		var frame = box(svg), texts = Array.from(svg.querySelectorAll('text')).filter(function (t) { return seen(box(t)) });
		texts_seen += texts.length;
		if (frame.right > box(svg.parentNode).right + 1 || svg.parentNode.scrollWidth > svg.parentNode.clientWidth + 1)
			say(page, 'a chart runs out of its row', svg);
		var small = texts.filter(function (t) { return parseFloat(getComputedStyle(t).fontSize) * frame.width / svg.viewBox.baseVal.width < 8.5 });
		if (small.length) say(page, 'a text of a chart is below 8.5 pixels', small[0]);
		texts.forEach(function (t) {
			var r = box(t);
			if (r.left < frame.left - 2 || r.right > frame.right + 2 || r.top < frame.top - 2 || r.bottom > frame.bottom + 2)
				say(page, 'a text leaves its chart', t);
		});
		pairs(page, 'texts of a chart cover each other', texts, .2);
	});
	page.querySelectorAll('.tools, .acts, .leg, #filter, .boxes, .tiles, .cards').forEach(function (row) {
		pairs(page, 'tools cover each other', Array.from(row.children), .05);
	});
}
function next() {
	if (done) look(pages[done - 1]);
	if (done === pages.length) {
		var verdict = wrong.length ? 'WRONG ' + wrong.length + ' \u00b6 ' + wrong.slice(0, 40).join(' \u00b6 ') : 'looked at ' + pages.length + ' pages, ' + texts_seen + ' texts';
		document.title = verdict;
		parent.postMessage(verdict, '*');
		return;
	}
	location.hash = pages[done++].id;
	setTimeout(next, 30);
}
next();
})();
