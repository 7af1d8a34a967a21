// What a person would try, done by the page itself when it is opened with #selftest; the result goes into #selftest-result.
'use strict';

function selftest({line, canvas, traces, $, isDark}) {
  const result = {ok: true, failures: [], events: traces[0].n}, s = line.state, t = traces[0];
  const check = (name, truth) => { if (!truth) { result.ok = false; result.failures.push(name); } };
  const key = k => canvas.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true, cancelable: true}));
  const span = () => s.to - s.from;
  const spot = i => {
    const x = LABEL + (t.start[i] + t.dur[i] / 2 - s.from) / (s.to - s.from) * (s.width - LABEL);
    return [x, t.tracks[t.trackOf[i]].y - s.scroll + ROW / 2];
  };
  const pointer = (type, x, y) => {
    const r = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent(type, {clientX: r.left + x, clientY: r.top + y, bubbles: true, pointerId: 1}));
  };

  const broken = [...document.querySelectorAll('#tables td')].filter(c => c.textContent === 'broken').length;
  check('what was guessed wrong stands first', !broken || document.querySelectorAll('#summary .surprise li').length === Math.min(broken, 5));
  if (t.n) {
    // Keys.
    const all = span();
    key('w');
    check('w zooms in', span() < all);
    const from = s.from;
    key('d');
    check('d moves right', s.from > from);
    key('a');
    check('a moves left', Math.abs(s.from - from) < all * 1e-6);
    key('s');
    key('0');
    check('0 fits', Math.abs(span() - all) < 1e-6);
    // A click on the longest event of a device lane, else of any.
    let pick = 0;
    const device = i => t.lanes[t.tracks[t.trackOf[i]].lane].device;
    for (let i = 1; i < t.n; i++) if ((device(i) && !device(pick)) || (device(i) === device(pick) && t.dur[i] > t.dur[pick])) pick = i;
    line.reveal(pick, true);
    line.draw();
    const [x, y] = spot(pick);
    pointer('pointerdown', x, y);
    pointer('pointerup', x, y);
    check('a click chooses', s.chosen === pick);
    check('details name it', $('details').textContent.includes(t.names[t.name[pick]]));
    check('details give its time', $('details').textContent.includes(duration(t.dur[pick])));
    result.chosen = t.names[t.name[pick]].slice(0, 80);
    if (t.link[pick] < t.n) check('its launch is named', $('details').textContent.includes('launched by'));
    // Wheel and drag.
    const before = span(), r = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: -240, clientX: r.left + x, clientY: r.top + y, cancelable: true}));
    check('the wheel zooms', span() < before);
    const start = s.from;
    pointer('pointerdown', x, y);
    pointer('pointermove', x - 60, y);
    pointer('pointerup', x - 60, y);
    check('a drag moves', s.from > start || s.to === t.to);
    // Arrow keys and search.
    key('Escape');
    check('Esc clears', s.chosen === -1);
    key('ArrowRight');
    check('an arrow key chooses', s.chosen >= 0);
    const name = t.names[t.name[pick]];
    $('search').value = name.slice(0, 60);
    $('search').dispatchEvent(new Event('input'));
    check('search finds', /found/.test($('matches').textContent) && !/none/.test($('matches').textContent));
    result.found = $('matches').textContent;
    $('search').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}));
    check('Enter goes to a match', t.names[t.name[s.chosen]].includes(name.slice(0, 60)));
    $('search').value = 'no such name \u0001';
    $('search').dispatchEvent(new Event('input'));
    check('search says none', $('matches').textContent === 'none found');
    $('search').value = '';
    $('search').dispatchEvent(new Event('input'));
  }
  // Theme, and names for everything that can be focused.
  const dark = isDark();
  $('theme').click();
  check('the theme turns', isDark() !== dark);
  $('theme').click();
  document.querySelectorAll('button, input, select, canvas').forEach(e => {
    const label = e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length && e.labels[0].textContent.trim());
    check('a name for ' + e.outerHTML.slice(0, 60), label);
  });
  document.querySelectorAll('table').forEach(e => check('caption and heads', e.caption && e.querySelector('thead th[scope="col"]')));
  const sorted = document.querySelector('table thead button');
  if (sorted) {
    sorted.click();
    check('a head sorts', sorted.parentElement.getAttribute('aria-sort') !== 'none');
  }
  const shown = document.querySelector('#tables td.name button');
  if (shown && t.n) {
    line.choose(-1);
    shown.click();
    check('a verdict shows its event', s.chosen >= 0 && shown.textContent.startsWith(t.names[t.name[s.chosen]].slice(0, 80)));
  }
  // Frames: from everything to a thousandth, moving; a pixel is read back so that the drawing is really done.
  const times = [], ink = canvas.getContext('2d');
  line.fit();
  for (let i = 0; i < 120 && t.n; i++) {
    if (i % 12 === 11) line.zoom(0.5); else line.pan(i % 2 ? 0.05 : -0.03);
    const began = performance.now();
    result.drawn = Math.max(result.drawn || 0, line.draw());
    ink.getImageData(0, 0, 1, 1);
    times.push(performance.now() - began);
  }
  times.sort((a, b) => a - b);
  if (times.length) Object.assign(result, {frame_ms_median: +times[60].toFixed(2), frame_ms_p95: +times[114].toFixed(2), frame_ms_max: +times[119].toFixed(2)});
  line.fit();
  line.draw();
  document.title = result.ok ? 'selftest ok' : 'selftest failed';
  document.body.append(make('pre', {id: 'selftest-result', text: JSON.stringify(result)}));
}
