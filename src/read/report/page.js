// Ties the page together: data, timeline, search, details, theme, keys, and the self-test behind #selftest.
'use strict';

(function () {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  const traces = data.traces.map(makeTrace);
  const canvas = $('canvas');
  let current = 0, matches = [], at = -1;

  function detail(t, i) {
    const box = $('details');
    if (i < 0) {
      box.replaceChildren(make('p', {class: 'note', text: 'Nothing chosen: click an event, or press an arrow key in the timeline.'}));
      return;
    }
    const track = t.tracks[t.trackOf[i]], lane = t.lanes[track.lane], list = make('dl');
    const row = (k, v) => list.append(make('dt', {text: k}), make('dd', {}, v));
    row('kind', KIND_NAMES[t.kind[i]] || 'event');
    row('start', duration(t.start[i]));
    row('duration', duration(t.dur[i]));
    row('lane', `${lane.label}, ${lane.process}`);
    const jump = k => {
      const b = make('button', {type: 'button', text: t.names[t.name[k]].slice(0, 90)});
      b.addEventListener('click', () => { line.choose(k); line.reveal(k, false); canvas.focus(); });
      return b;
    };
    if (t.link[i] < t.n) {
      row(lane.device ? 'launched by' : 'backward of', jump(t.link[i]));
      if (lane.device) row('delay', duration(t.start[i] - t.start[t.link[i]]));
    }
    for (let w = t.firstWork[i], n = 0; w >= 0 && n < 20; w = t.nextWork[w], n++) row(t.deviceEvent(w) ? 'launches' : 'its backward', jump(w));
    for (const [k, v] of Object.entries(t.infos[t.info[i]] || {})) row(k, plain(v));
    box.replaceChildren(make('h3', {text: t.names[t.name[i]]}), list);
  }

  const line = makeTimeline(canvas, detail);

  function show(k) {
    current = k;
    line.setTrace(traces[k]);
    detail(traces[k], -1);
    $('summary').replaceChildren(...[surpriseOf(data.verdicts, jumpTo), summaryOf(data.explain[k])].filter(Boolean));
    sectionCount = 0;
    $('tables').replaceChildren(...[verdictTable(data.verdicts, jumpTo), ...diffTables(data.diff), ...explainTables(data.explain[k])].filter(Boolean));
    const t = traces[k];
    $('cut').hidden = t.n === t.total;
    $('cut').textContent = `The timeline shows the ${t.n.toLocaleString('en')} longest of ${t.total.toLocaleString('en')} events; the tables count all of them.`;
    canvas.setAttribute('aria-label', `Timeline of ${t.label}: ${t.n} events in ${t.lanes.length} lanes over ${duration(t.to)}. The tables below say the same in text.`);
    search($('search').value, false);
  }

  // Verdicts are about the first trace; their events are found by name and start.
  function jumpTo(event) {
    if (current !== 0) { $('trace').value = 0; show(0); }
    const t = traces[0];
    for (let i = 0; i < t.n; i++) {
      if (Math.abs(t.start[i] - event.start_us * 1e3) > 1 || t.names[t.name[i]] !== event.name) continue;
      line.choose(i);
      line.reveal(i, false);
      canvas.scrollIntoView({block: 'center'});
      canvas.focus({preventScroll: true});
      return;
    }
  }

  function search(text, move) {
    const t = traces[current], wanted = text.trim().toLowerCase();
    matches = [];
    at = -1;
    if (!wanted) {
      line.state.matchNames = null;
      $('matches').textContent = '';
      line.redraw();
      return;
    }
    const hits = new Uint8Array(t.names.length);
    t.names.forEach((name, i) => { if (name.toLowerCase().includes(wanted)) hits[i] = 1; });
    for (let i = 0; i < t.n; i++) if (hits[t.name[i]]) matches.push(i);
    matches.sort((a, b) => t.start[a] - t.start[b]);
    line.state.matchNames = hits;
    $('matches').textContent = matches.length ? `${matches.length.toLocaleString('en')} found` : 'none found';
    if (move) nextMatch(1); else line.redraw();
  }

  function nextMatch(by) {
    if (!matches.length) return;
    at = (at + by + matches.length) % matches.length;
    $('matches').textContent = `${(at + 1).toLocaleString('en')} of ${matches.length.toLocaleString('en')}`;
    line.choose(matches[at]);
    line.reveal(matches[at], false);
  }

  const actions = {in: () => line.zoom(0.5), out: () => line.zoom(2), left: () => line.pan(-0.25), right: () => line.pan(0.25),
                   fit: () => line.fit(), prev: () => nextMatch(-1), next: () => nextMatch(1)};
  const keys = {w: actions.in, s: actions.out, a: actions.left, d: actions.right, '+': actions.in, '=': actions.in, '-': actions.out,
                0: actions.fit, Home: actions.fit, ArrowLeft: () => line.step(-1, 0), ArrowRight: () => line.step(1, 0),
                ArrowUp: () => line.step(0, -1), ArrowDown: () => line.step(0, 1), Escape: () => line.choose(-1),
                Enter: () => { if (line.state.chosen >= 0) line.reveal(line.state.chosen, true); },
                f: () => { if (line.state.chosen >= 0) line.reveal(line.state.chosen, true); },
                PageDown: () => { line.state.scroll += 200; line.clampView(); line.redraw(); },
                PageUp: () => { line.state.scroll -= 200; line.clampView(); line.redraw(); },
                '/': () => $('search').focus()};

  function onKey(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const f = keys[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!f) return;
    f();
    e.preventDefault();
  }

  function place(e) {
    const r = canvas.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  }

  let drag = null;
  function onDown(e) {
    const [x, y] = place(e);
    drag = {x, y, moved: false};
    if (canvas.setPointerCapture && e.isTrusted) canvas.setPointerCapture(e.pointerId);
    canvas.focus({preventScroll: true});
  }
  function onMove(e) {
    const [x, y] = place(e);
    if (!drag) {
      const h = line.hit(x, y);
      if (h !== line.state.hover) {
        line.state.hover = h;
        canvas.title = h < 0 ? '' : `${traces[current].names[traces[current].name[h]].slice(0, 200)}\n${duration(traces[current].dur[h])}`;
        line.redraw();
      }
      return;
    }
    if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 3) drag.moved = true;
    if (!drag.moved) return;
    line.pan(-(x - drag.x) / (line.state.width - LABEL));
    line.state.scroll -= y - drag.y;
    line.clampView();
    drag.x = x;
    drag.y = y;
  }
  function onUp(e) {
    if (drag && !drag.moved) line.choose(line.hit(...place(e)));
    drag = null;
  }
  function onWheel(e) {
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 16 : 1;
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) line.pan((e.deltaX || e.deltaY) * unit / 1200);
    else line.zoom(Math.exp(e.deltaY * unit * 0.0022), place(e)[0]);
  }

  function isDark() {
    const t = document.documentElement.dataset.theme;
    return t ? t === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches;
  }
  function setTheme(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    $('theme').textContent = isDark() ? 'Light' : 'Dark';
    line.recolor();
  }

  canvas.addEventListener('keydown', onKey);
  canvas.addEventListener('pointerdown', onDown);
  canvas.addEventListener('pointermove', onMove);
  canvas.addEventListener('pointerup', onUp);
  canvas.addEventListener('pointercancel', () => { drag = null; });
  canvas.addEventListener('wheel', onWheel, {passive: false});
  document.querySelectorAll('[data-do]').forEach(b => b.addEventListener('click', () => actions[b.dataset.do]()));
  document.addEventListener('keydown', e => {
    if (e.key === '/' && !/INPUT|SELECT/.test(document.activeElement.tagName)) { $('search').focus(); e.preventDefault(); }
  });
  $('search').addEventListener('input', e => search(e.target.value, false));
  $('search').addEventListener('keydown', e => {
    if (e.key === 'Enter') nextMatch(e.shiftKey ? -1 : 1);
    if (e.key === 'Escape') { e.target.value = ''; search('', false); canvas.focus(); }
  });
  $('arrows').addEventListener('change', e => { line.state.arrows = e.target.checked; line.redraw(); });
  $('theme').addEventListener('click', () => setTheme(isDark() ? 'light' : 'dark'));
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => setTheme(null));
  window.addEventListener('resize', line.resize);
  window.addEventListener('beforeprint', () => { document.documentElement.dataset.print = document.documentElement.dataset.theme || ''; document.documentElement.dataset.theme = 'light'; line.recolor(); line.draw(); });
  window.addEventListener('afterprint', () => { const was = document.documentElement.dataset.print; if (was) document.documentElement.dataset.theme = was; else delete document.documentElement.dataset.theme; line.recolor(); });

  if (traces.length > 1) {
    $('trace-pick').hidden = false;
    traces.forEach((t, i) => $('trace').append(make('option', {value: i, text: t.label})));
    $('trace').addEventListener('change', e => show(Number(e.target.value)));
  }
  const options = new Set(location.hash.slice(1).split(','));
  show(0);
  setTheme(options.has('dark') ? 'dark' : options.has('light') ? 'light' : null);
  if (options.has('selftest')) window.addEventListener('load', () => selftest({line, canvas, traces, search, $, isDark}));
})();
