// page.js: the script of a report (its hash is in the page's policy). Shows one page at a time, switches series, sorts and exports
// tables, and draws the sample viewer. Text of the database only ever enters the page as textContent.
(function () {
'use strict';
var D = document, $ = function (id) { return D.getElementById(id) };
function all(selector, in_) { return Array.from((in_ || D).querySelectorAll(selector)) }
function make(tag, class_, text) {
	var e = D.createElement(tag);
	if (class_) e.className = class_;
	if (text !== undefined) e.textContent = text;
	return e;
}
function save(name, text) {
	var a = make('a');
	a.href = URL.createObjectURL(new Blob([text], {type: 'text/plain;charset=utf-8'}));
	a.download = name;
	a.click();
	setTimeout(function () { URL.revokeObjectURL(a.href) }, 1000);
}

// ---- pages ----
var pages = all('section.page'), links = all('#nav a');
function show(id, focus) {
	pages.forEach(function (p) { p.classList.toggle('on', p.id === id) });
	links.forEach(function (a) {
		var here = a.getAttribute('href') === '#' + id;
		if (here) a.setAttribute('aria-current', 'page'); else a.removeAttribute('aria-current');
		if (here) $('nav').scrollLeft = a.offsetLeft - ($('nav').clientWidth - a.offsetWidth) / 2; // where the pages are a strip
	});
	scrollTo(0, 0);
	requestAnimationFrame(function () { scrollTo(0, 0) }); // after the browser's own jump to the page's id
	if (focus) $('h-' + id) && $('h-' + id).focus({preventScroll: true});
	if (id === samples_page && viewer) viewer.draw();
}
var samples_page = (all('section.page').filter(function (p) { return p.querySelector('#filter') })[0] || {}).id, viewer = null;
function route(focus) {
	var h = decodeURIComponent(location.hash.slice(1)), target = h && $(h), s = /^s-(\d+)\.(\d+)\.(\d+)$/.exec(h);
	if (s && viewer) {
		viewer.set({p: s[1], v: s[2], r: s[3]});
		return show(samples_page, true);
	}
	var page = target && target.closest('section.page');
	show(page ? page.id : pages[0].id, focus);
	if (page && target !== page) {
		for (var e = target; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true;
		target.scrollIntoView();
	}
}
function step(by) {
	var at = pages.findIndex(function (p) { return p.classList.contains('on') });
	location.hash = pages[(at + by + pages.length) % pages.length].id;
}
addEventListener('hashchange', function () { route(true) });
addEventListener('keydown', function (e) {
	if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
	if (e.key === '[') step(-1);
	else if (e.key === ']') step(1);
	else if (e.key === '/' && samples_page) {
		location.hash = samples_page;
		setTimeout(function () { D.querySelector('#filter [name=q]').focus() }, 0);
	} else return;
	e.preventDefault();
});

// ---- legends: a box switches its series in every chart, and its twins in the other legends ----
function switch_series(v, on) {
	all('.s.' + v).forEach(function (g) { g.classList.toggle('off', !on) });
	all('.leg input[data-v=' + v + ']').forEach(function (o) { o.checked = on });
}
all('.leg').forEach(function (leg) {
	leg.addEventListener('change', function (e) { switch_series(e.target.dataset.v, e.target.checked) });
	leg.addEventListener('click', function (e) {
		if (e.target.dataset.all === undefined) return;
		all('input', leg).forEach(function (box) { switch_series(box.dataset.v, !!e.target.dataset.all) });
	});
});

// ---- tables: a click on a head sorts by that column, by data-s where the shown text does not sort ----
function value(row, column) {
	var cell = row.cells[column], text = cell.dataset.s || (cell.firstChild ? cell.firstChild.textContent : '');
	return text;
}
function sort(head) {
	var table = head.closest('table'), body = table.tBodies[0], column = head.cellIndex;
	var up = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
	all('th[aria-sort]', table).forEach(function (th) { th.removeAttribute('aria-sort') });
	head.setAttribute('aria-sort', up > 0 ? 'ascending' : 'descending');
	Array.from(body.rows).sort(function (p, q) {
		var x = value(p, column), y = value(q, column), m = parseFloat(x), n = parseFloat(y);
		if (isNaN(m) !== isNaN(n)) return isNaN(m) ? 1 : -1; // what has no number comes last
		return up * (isNaN(m) ? x.localeCompare(y) : m - n);
	}).forEach(function (row) { body.appendChild(row) });
}
function csv_field(s) {
	if (/^[=+\-@\t]/.test(s) && isNaN(s)) s = "'" + s;
	return /[",\r\n]/.test(s) ? '"' + s.replace(/"/g, '""') + '"' : s;
}
function csv(table) {
	var lines = [all('thead th', table).map(function (th) { return csv_field(th.dataset.n) })];
	Array.from(table.tBodies[0].rows).forEach(function (row) {
		lines.push(Array.from(row.cells).map(function (c, i) { return csv_field(value(row, i)) }));
	});
	return lines.map(function (l) { return l.join(',') }).join('\n') + '\n';
}
var tex_special = {'\u00d7': '$\\times$', '\u2212': '$-$', '\u2013': '--', '\u00b7': '$\\cdot$', '\\': '\\textbackslash{}', '~': '\\textasciitilde{}', '^': '\\textasciicircum{}', '<': '\\textless{}', '>': '\\textgreater{}', '|': '\\textbar{}', '"': '\\symbol{34}'};
function tex_text(s) { // a "[" or "*" at a row's front would belong to the \\ before it
	return (/^[\[*]/.test(s) ? '{}' : '') + s.replace(/[&%$#_{}\u00d7\u2212\u2013\u00b7\\~^<>|"]/g, function (c) { return tex_special[c] || '\\' + c });
}
function tex(table, caption) {
	var heads = all('thead th', table), out = '% ' + caption + '\n\\begin{tabular}{';
	out += heads.map(function (th) { return th.classList.contains('l') ? 'l' : 'r' }).join('') + '}\n\\hline\n';
	out += heads.map(function (th) { return tex_text(th.textContent) }).join(' & ') + ' \\\\\n\\hline\n';
	Array.from(table.tBodies[0].rows).forEach(function (row) {
		out += Array.from(row.cells).map(function (c) {
			return Array.from(c.childNodes).map(function (n) { return tex_text(n.textContent) }).join(' ');
		}).join(' & ') + ' \\\\\n';
	});
	return out + '\\hline\n\\end{tabular}\n';
}
D.addEventListener('click', function (e) {
	var button = e.target.closest('button');
	if (!button) return;
	if (button.parentNode.matches('table.sort th')) return sort(button.parentNode);
	if (!button.dataset.x) return;
	var tab = button.closest('.tab'), table = tab.querySelector('table'), name = tab.id.slice(2);
	if (button.dataset.x === 'csv') save(name + '.csv', csv(table));
	else save(name + '.tex', tex(table, tab.querySelector('.cap').textContent));
});

// ---- samples: rows of a fixed height, only those in sight are in the page ----
function Viewer(S) {
	var H = 46, form = $('filter'), list = $('list'), rows = $('rows'), one = $('one'), N = S.r.length / 6;
	var hits = [], at = -1, lower = [], pending = 0;
	var word = [[16, 'failed'], [4, 'empty'], [1, 'worse'], [2, 'better'], [8, 'cut']];
	function low(t) { return t < 0 ? '' : lower[t] === undefined ? (lower[t] = S.t[t].toLowerCase()) : lower[t] }
	function text(t) { return t < 0 ? '' : S.t[t] }
	function row(k) {
		var i = 6 * S.r[6 * k], c = 3 * S.r[6 * k + 1];
		return {panel: S.p[S.c[c]], variant: S.v[S.c[c + 1]], ppm: S.c[c + 2], id: text(S.i[i + 1]), question: text(S.i[i + 2]), gold: text(S.i[i + 3]),
			full: text(S.i[i + 4]), has_full: S.i[i + 4] >= 0, full_score: S.i[i + 5], answer: text(S.r[6 * k + 2]), score: S.r[6 * k + 3],
			flags: S.r[6 * k + 4], kept: S.r[6 * k + 5]};
	}
	function mark(flags) {
		for (var i = 0; i < word.length; i++) if (flags & word[i][0]) return word[i][1];
		return 'same';
	}
	function score(s) { return s < 0 ? '\u2013' : (s / 1000).toFixed(2) }
	function filter() {
		var f = form.elements, p = f.p.value, v = f.v.value, r = f.r.value, q = f.q.value.toLowerCase(), mask = 0;
		all('input[type=checkbox]', form).forEach(function (b) { mask |= b.checked ? +b.value : 0 });
		hits = [];
		for (var k = 0; k < N; k++) {
			var c = 3 * S.r[6 * k + 1], i = 6 * S.r[6 * k];
			if (p && S.c[c] !== +p || v && S.c[c + 1] !== +v || r && S.c[c + 2] !== +r || mask && !(S.r[6 * k + 4] & mask)) continue;
			if (q && low(S.r[6 * k + 2]).indexOf(q) < 0 && low(S.i[i + 2]).indexOf(q) < 0 && low(S.i[i + 3]).indexOf(q) < 0 &&
				low(S.i[i + 1]).indexOf(q) < 0 && low(S.i[i + 4]).indexOf(q) < 0) continue;
			hits.push(k);
		}
		$('shown').textContent = hits.length + ' of ' + N + ' samples';
		rows.style.height = hits.length * H + 'px';
		list.scrollTop = 0;
		at = -1;
		select(hits.length ? 0 : -1, false);
		draw();
	}
	function line(n) {
		var x = row(hits[n]), e = make('div', 'r ' + mark(x.flags)), a = make('div'), b = make('div', 'sub');
		e.id = 'o' + n;
		e.setAttribute('role', 'option');
		e.setAttribute('aria-posinset', n + 1);
		e.setAttribute('aria-setsize', hits.length);
		e.setAttribute('aria-selected', n === at);
		e.style.top = n * H + 'px';
		e.dataset.n = n;
		a.append(make('i', 'm', mark(x.flags)), make('bdi', '', x.answer.slice(0, 160) || (x.flags & 4 ? '(empty)' : '')));
		b.append(make('b', '', x.variant), ' r ' + x.ppm / 1e6 + ' \u00b7 ', make('bdi', '', x.panel[0] + ', ' + x.panel[1] + ' \u00b7 ' + x.id.slice(0, 40)));
		e.append(a, b);
		return e;
	}
	function draw() {
		pending = 0;
		var from = Math.max(0, Math.floor(list.scrollTop / H) - 5), to = Math.min(hits.length, Math.ceil((list.scrollTop + list.clientHeight) / H) + 5);
		var f = D.createDocumentFragment();
		for (var n = from; n < to; n++) f.append(line(n));
		rows.replaceChildren(f);
	}
	function soon() { if (!pending) pending = requestAnimationFrame(draw) }
	// Words that both answers begin and end with stay plain, what lies between is marked.
	function differing(box, mine, other) {
		var a = mine.split(/(\s+)/), b = other.split(/(\s+)/), i = 0, j = 0;
		while (i < a.length && i < b.length && a[i] === b[i]) i++;
		while (j < a.length - i && j < b.length - i && a[a.length - 1 - j] === b[b.length - 1 - j]) j++;
		box.append(a.slice(0, i).join(''), make('mark', '', a.slice(i, a.length - j).join('')), a.slice(a.length - j).join(''));
	}
	function part(title, body, class_) {
		var s = make('section', class_), t = make('h4', '', title), p = make('p', 'text');
		p.dir = 'auto';
		if (typeof body === 'string') p.textContent = body; else body(p);
		s.append(t, p);
		one.append(s);
	}
	function detail() {
		one.replaceChildren();
		if (at < 0) return one.append(make('p', 'sub', 'No sample matches.'));
		var x = row(hits[at]), h = make('h3', '', x.variant + ', r = ' + x.ppm / 1e6 + ' '), sub = make('p', 'sub');
		word.forEach(function (w) { if (x.flags & w[0]) h.append(make('i', 'm ' + w[1], w[1])) });
		sub.append(make('bdi', '', x.panel[0] + ', ' + x.panel[1] + ' \u00b7 ' + x.id), x.kept < 0 ? '' : ' \u00b7 kept ' + (x.kept / 1000).toFixed(3));
		one.append(h, sub);
		part('Question', x.question.trim());
		part('Expected', x.gold);
		var both = x.has_full;
		part((S.names ? S.names[0] : 'Full cache') + ' \u2014 score ' + score(x.full_score),
			x.has_full ? function (p) { differing(p, x.full, x.answer) } : 'not measured');
		part((S.names ? S.names[1] : 'Pruned') + (x.flags & 16 ? ' \u2014 failed' : ' \u2014 score ' + score(x.score)),
			both ? function (p) { differing(p, x.answer, x.full) } : x.answer, mark(x.flags));
	}
	function select(n, into_view) {
		at = n;
		list.setAttribute('aria-activedescendant', n < 0 ? '' : 'o' + n);
		if (into_view) {
			if (n * H < list.scrollTop) list.scrollTop = n * H;
			if ((n + 1) * H > list.scrollTop + list.clientHeight) list.scrollTop = (n + 1) * H - list.clientHeight;
			draw();
		}
		detail();
	}
	list.addEventListener('scroll', soon);
	addEventListener('resize', soon);
	list.addEventListener('click', function (e) {
		var r = e.target.closest('.r');
		if (r) select(+r.dataset.n, true);
	});
	list.addEventListener('keydown', function (e) {
		var page = Math.max(1, Math.floor(list.clientHeight / H) - 1);
		var by = {ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -hits.length, End: hits.length}[e.key];
		if (!by || !hits.length) return;
		e.preventDefault();
		select(Math.min(hits.length - 1, Math.max(0, at + by)), true);
	});
	var timer = 0;
	form.addEventListener('input', function () { clearTimeout(timer); timer = setTimeout(filter, 80) });
	form.addEventListener('submit', function (e) { e.preventDefault() });
	$('save').addEventListener('click', function () {
		var lines = [['task', 'protocol', 'method', 'retained', 'sample_id', 'question', 'gold', 'full_answer', 'full_score', 'answer', 'score', 'flags', 'kept']];
		hits.forEach(function (k) {
			var x = row(k);
			lines.push([x.panel[0], x.panel[1], x.variant, x.ppm / 1e6, x.id, x.question, x.gold, x.full, x.full_score < 0 ? '' : x.full_score / 1000,
				x.answer, x.score < 0 ? '' : x.score / 1000, word.filter(function (w) { return x.flags & w[0] }).map(function (w) { return w[1] }).join(' '),
				x.kept < 0 ? '' : x.kept / 1000]);
		});
		save('samples.csv', lines.map(function (l) { return l.map(function (f) { return csv_field(String(f)) }).join(',') }).join('\n') + '\n');
	});
	form.hidden = false;
	list.parentNode.hidden = false;
	filter();
	return {draw: draw, set: function (values) {
		form.reset();
		for (var name in values) form.elements[name].value = values[name];
		filter();
	}};
}
D.documentElement.classList.add('js');
if ($('sample-data')) viewer = Viewer(JSON.parse($('sample-data').textContent));
route(false);
addEventListener('load', function () { setTimeout(function () { route(false) }, 0) });
})();
