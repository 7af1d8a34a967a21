// The timeline: one canvas, binned to the pixel. Every track (a row of a lane) holds spans that do not overlap, sorted
// by start, so that a frame costs a binary search a pixel however many events there are.
'use strict';

const KIND_NAMES = ['op', 'region', 'runtime call', 'kernel', 'copy', 'fill', 'region on the device', 'sync', 'overhead',
                    'python', 'compile', 'other device', 'profiler', 'span'];
const ROW = 18, GAP = 6, HEAD = 26, WIDE_LABEL = 168, NARROW_LABEL = 112;
let LABEL = WIDE_LABEL; // the width of the lanes' names

function unpack(text, Type) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Type(bytes.buffer);
}

function duration(ns) {
  const a = Math.abs(ns);
  if (a < 1e3) return ns.toFixed(0) + ' ns';
  if (a < 1e6) return (ns / 1e3).toFixed(3) + ' \u00b5s';
  if (a < 1e9) return (ns / 1e6).toFixed(3) + ' ms';
  return (ns / 1e9).toFixed(3) + ' s';
}

// What fits into a narrow span: namespaces and return types say least.
function shownName(name) {
  return name.replace(/^void /, '').replace(/\b(?:at::native::|at::|aten::|cutlass::)|\(anonymous namespace\)::/g, '')
    .replace(/^(?:vectorized|unrolled)_elementwise_kernel<[^,]*, ?/, 'elementwise ');
}

function axisLabel(ns, step) {
  const [unit, name] = step < 1e3 ? (Math.abs(ns) < 1e6 ? [1e3, '\u00b5s'] : [1e6, 'ms']) : step < 1e6 ? [1e3, '\u00b5s'] : step < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
  return (ns / unit).toLocaleString('en', {maximumFractionDigits: 6}) + ' ' + name;
}

function makeTrace(d) {
  const t = {label: d.label, names: d.names, infos: d.infos, n: d.n, total: d.total, lanes: d.lanes,
             kind: unpack(d.kind, Uint8Array), start: unpack(d.start, Float64Array), dur: unpack(d.dur, Float64Array),
             name: unpack(d.name, Uint32Array), info: unpack(d.info, Uint32Array), link: unpack(d.link, Uint32Array)};
  t.shown = d.names.map(shownName);
  t.tracks = [];
  t.trackOf = new Uint32Array(t.n);
  let y = HEAD;
  t.lanes.forEach((lane, l) => {
    lane.y = y;
    lane.rows.forEach(([first, count]) => {
      for (let i = first; i < first + count; i++) t.trackOf[i] = t.tracks.length;
      t.tracks.push({lane: l, first, end: first + count, y});
      y += ROW;
    });
    y += GAP;
  });
  t.height = y + 4;
  t.from = 0;
  t.to = 1;
  for (let i = 0; i < t.n; i++) {
    t.from = Math.min(t.from, t.start[i]);
    t.to = Math.max(t.to, t.start[i] + t.dur[i]);
  }
  // The work of a call: link[] of device work names its call; the first one and a chain lead back.
  // So do backward ops their forward op.
  t.deviceEvent = i => t.lanes[t.tracks[t.trackOf[i]].lane].device;
  t.firstWork = new Int32Array(t.n).fill(-1);
  t.nextWork = new Int32Array(t.n).fill(-1);
  for (let i = t.n - 1; i >= 0; i--) {
    const c = t.link[i];
    if (c < t.n) { t.nextWork[i] = t.firstWork[c]; t.firstWork[c] = i; }
  }
  return t;
}

// The first event of [first, end) that ends after `at`: ends are sorted, since nothing overlaps in a track.
function firstEndingAfter(t, first, end, at) {
  while (first < end) {
    const m = (first + end) >> 1;
    if (t.start[m] + t.dur[m] > at) end = m; else first = m + 1;
  }
  return first;
}

function firstStartingAt(t, first, end, at) {
  while (first < end) {
    const m = (first + end) >> 1;
    if (t.start[m] >= at) end = m; else first = m + 1;
  }
  return first;
}

function fromHsl(hue, saturation, light) {
  const a = saturation * Math.min(light, 1 - light);
  return [0, 8, 4].map(n => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (light - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  });
}

// As image data holds it on the little-endian machines that browsers run on.
const pixel = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

function makeTimeline(canvas, onChoose) {
  const ink = canvas.getContext('2d', {alpha: false});
  const s = {trace: null, from: 0, to: 1, scroll: 0, chosen: -1, hover: -1, matchNames: null, arrows: true, width: 800,
             height: 300, colors: {}, pending: false, frames: 0};

  function readColors() {
    const css = getComputedStyle(document.documentElement);
    for (const name of ['back', 'ink', 'soft', 'line', 'panel', 'accent', 'choose']) s.colors[name] = css.getPropertyValue('--' + name).trim();
    const dark = parseInt(s.colors.back.slice(1, 3), 16) < 128;
    const rgb = Array.from({length: 360}, (_, hue) => dark ? fromHsl(hue, 0.38, 0.36) : fromHsl(hue, 0.54, 0.75));
    s.shades = rgb.map(c => `rgb(${c.join(' ')})`);
    s.pixels = Uint32Array.from(rgb, pixel);
    s.dimPixel = pixel(dark ? [0x2b, 0x31, 0x3a] : [0xe4, 0xe8, 0xec]);
    s.colors.text = dark ? '#f4f6f8' : '#14171c';
    s.colors.dim = dark ? '#2b313a' : '#e4e8ec';
  }

  // Numbered names (ProfilerStep#3, layer_7) share a colour.
  function hash(name) {
    name = name.replace(/[#_ ]?\d+$/, '');
    let h = 2166136261;
    for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
    return (h >>> 0) % 360;
  }

  function setTrace(t) {
    if (!t.shade) {
      t.shade = new Uint16Array(t.names.length);
      t.names.forEach((name, i) => { t.shade[i] = hash(name); });
    }
    Object.assign(s, {trace: t, from: t.from, to: t.to, scroll: 0, chosen: -1, hover: -1, matchNames: null});
    resize();
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    s.width = Math.max(320, canvas.parentElement.clientWidth || 800);
    LABEL = s.width < 600 ? NARROW_LABEL : WIDE_LABEL;
    s.height = Math.min(s.trace ? s.trace.height : 200, Math.max(220, Math.round(window.innerHeight * 0.6)));
    canvas.style.height = s.height + 'px';
    canvas.width = Math.round(s.width * ratio);
    canvas.height = Math.round(s.height * ratio);
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    redraw();
  }

  const toX = ns => LABEL + (ns - s.from) / (s.to - s.from) * (s.width - LABEL);
  const toTime = x => s.from + (x - LABEL) / (s.width - LABEL) * (s.to - s.from);

  function drawAxis() {
    const span = s.to - s.from, rough = span / Math.max(2, (s.width - LABEL) / 110);
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map(k => k * power).find(v => v >= rough);
    ink.fillStyle = s.colors.panel;
    ink.fillRect(0, 0, s.width, HEAD - 4);
    ink.fillStyle = s.colors.soft;
    ink.strokeStyle = s.colors.line;
    ink.textAlign = 'left';
    for (let v = Math.ceil(s.from / step) * step; v <= s.to; v += step) {
      const x = Math.round(toX(v)) + 0.5;
      if (x < LABEL) continue;
      ink.beginPath();
      ink.moveTo(x, 4);
      ink.lineTo(x, s.height);
      ink.stroke();
      ink.fillText(axisLabel(v, step), x + 4, 14);
    }
  }

  // Marks of whole pixels for what is smaller than one: a row of colours for each track, put on the canvas in one go.
  const strip = {canvas: document.createElement('canvas'), ink: null, image: null, pixels: null, rows: []};
  function stripFor(rows) {
    const width = Math.max(1, Math.ceil(s.width)), height = Math.max(1, rows);
    if (!strip.image || strip.image.width !== width || strip.image.height < height) {
      strip.canvas.width = width;
      strip.canvas.height = height;
      strip.ink = strip.canvas.getContext('2d');
      strip.image = strip.ink.createImageData(width, height);
      strip.pixels = new Uint32Array(strip.image.data.buffer);
    }
    strip.rows.length = 0;
  }
  function putStrip() {
    if (!strip.rows.length) return;
    strip.ink.putImageData(strip.image, 0, 0);
    ink.imageSmoothingEnabled = false;
    strip.rows.forEach((y, row) => ink.drawImage(strip.canvas, 0, row, strip.image.width, 1, 0, y, strip.image.width, ROW - 2));
  }

  // Spans of a pixel or more are drawn as they are.
  function drawTrack(t, track, y) {
    const scale = (s.width - LABEL) / (s.to - s.from), colors = s.colors, width = strip.image.width;
    let i = firstEndingAfter(t, track.first, track.end, s.from), drawn = 0, row = -1, last = '';
    while (i < track.end && t.start[i] < s.to) {
      const x0 = Math.max(LABEL, LABEL + (t.start[i] - s.from) * scale);
      const x1 = Math.min(s.width, LABEL + (t.start[i] + t.dur[i] - s.from) * scale), wide = x1 - x0;
      const off = s.matchNames && !s.matchNames[t.name[i]], shade = t.shade[t.name[i]];
      drawn++;
      if (wide < 1) {
        const pixel = Math.min(width - 1, Math.floor(x0));
        if (row < 0) {
          row = strip.rows.push(y) - 1;
          strip.pixels.fill(0, row * width, (row + 1) * width);
        }
        strip.pixels[row * width + pixel] = off ? s.dimPixel : s.pixels[shade];
        i = firstStartingAt(t, i + 1, track.end, s.from + (pixel + 1 - LABEL) / scale);
        continue;
      }
      const color = off ? colors.dim : s.shades[shade];
      if (color !== last) ink.fillStyle = last = color;
      ink.fillRect(x0, y, wide - (wide > 3 ? 0.5 : 0), ROW - 2);
      if (wide > 34) {
        ink.fillStyle = last = off ? colors.soft : colors.text;
        const room = Math.floor((wide - 6) / 6.2), name = t.shown[t.name[i]];
        ink.fillText(name.length > room ? name.slice(0, Math.max(1, room - 1)) + '\u2026' : name, x0 + 3, y + 12);
      }
      i++;
    }
    return drawn;
  }

  function outline(t, i, color) {
    if (i < 0) return;
    const track = t.tracks[t.trackOf[i]], y = track.y - s.scroll;
    const x0 = Math.max(LABEL, toX(t.start[i])), x1 = Math.min(s.width, toX(t.start[i] + t.dur[i]));
    if (x1 < LABEL || x0 > s.width) return;
    ink.strokeStyle = color;
    ink.lineWidth = 2;
    ink.strokeRect(x0 - 1, y - 1, Math.max(3, x1 - x0) + 2, ROW);
    ink.lineWidth = 1;
  }

  function arrow(t, call, work, color) {
    const a = t.tracks[t.trackOf[call]], b = t.tracks[t.trackOf[work]];
    const x0 = toX(t.start[call]), y0 = a.y - s.scroll + ROW - 2, x1 = toX(t.start[work]), y1 = b.y - s.scroll;
    if (Math.max(x0, x1) < LABEL || Math.min(x0, x1) > s.width) return;
    const down = y1 > y0 ? 1 : -1, bend = Math.max(12, Math.abs(y1 - y0) / 2) * down;
    ink.strokeStyle = ink.fillStyle = color;
    ink.beginPath();
    ink.moveTo(x0, y0);
    ink.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    ink.stroke();
    ink.beginPath();
    ink.moveTo(x1, y1);
    ink.lineTo(x1 - 3, y1 - 6 * down);
    ink.lineTo(x1 + 3, y1 - 6 * down);
    ink.fill();
  }

  // All arrows while they are few, else those of the chosen event.
  function drawArrows(t) {
    const most = 160, list = [];
    for (const track of t.tracks) {
      const first = firstEndingAfter(t, track.first, track.end, s.from);
      for (let i = first; i < track.end && t.start[i] < s.to && list.length <= most; i++) if (t.link[i] < t.n) list.push(i);
      if (list.length > most) break;
    }
    if (list.length <= most) for (const i of list) arrow(t, t.link[i], i, s.colors.soft);
  }

  function drawChosenArrows(t) {
    const i = s.chosen;
    if (i < 0) return;
    if (t.link[i] < t.n) arrow(t, t.link[i], i, s.colors.choose);
    for (let w = t.firstWork[i]; w >= 0; w = t.nextWork[w]) arrow(t, i, w, s.colors.choose);
  }

  function drawLabels(t) {
    ink.fillStyle = s.colors.back;
    ink.fillRect(0, HEAD - 4, LABEL - 4, s.height);
    ink.strokeStyle = s.colors.line;
    for (const lane of t.lanes) {
      const y = lane.y - s.scroll, h = lane.rows.length * ROW;
      if (y + h < HEAD - 4 || y > s.height) continue;
      ink.fillStyle = s.colors.ink;
      const at = Math.max(y, HEAD - 2);
      ink.fillText(lane.label.slice(0, 26), 6, at + 12, LABEL - 14);
      if (y + h - at > 28) {
        ink.fillStyle = s.colors.soft;
        ink.fillText(lane.process.slice(0, 28), 6, at + 26, LABEL - 14);
      }
      ink.beginPath();
      ink.moveTo(0, y - 3.5);
      ink.lineTo(s.width, y - 3.5);
      ink.stroke();
    }
    ink.fillStyle = s.colors.panel;
    ink.fillRect(0, 0, LABEL - 4, HEAD - 4);
  }

  function draw() {
    const t = s.trace;
    s.pending = false;
    if (!t) return 0;
    ink.fillStyle = s.colors.back;
    ink.fillRect(0, 0, s.width, s.height);
    ink.font = '11px system-ui, "DejaVu Sans", sans-serif';
    drawAxis();
    let drawn = 0;
    ink.save();
    ink.beginPath();
    ink.rect(LABEL, HEAD - 4, s.width - LABEL, s.height);
    ink.clip();
    const visible = t.tracks.filter(track => track.y - s.scroll + ROW >= HEAD && track.y - s.scroll <= s.height);
    stripFor(visible.length);
    for (const track of visible) drawn += drawTrack(t, track, track.y - s.scroll);
    putStrip();
    if (s.arrows) drawArrows(t);
    drawChosenArrows(t);
    outline(t, s.hover, s.colors.accent);
    outline(t, s.chosen, s.colors.choose);
    ink.restore();
    drawLabels(t);
    s.frames++;
    return drawn;
  }

  function redraw() {
    if (s.pending) return;
    s.pending = true;
    requestAnimationFrame(draw);
  }

  function clampView() {
    const t = s.trace, whole = t.to - t.from, span = Math.min(whole, Math.max(20, s.to - s.from));
    s.from = Math.min(Math.max(s.from, t.from), t.to - span);
    s.to = s.from + span;
    s.scroll = Math.min(Math.max(0, s.scroll), Math.max(0, t.height - s.height));
  }

  function zoom(factor, x) {
    const at = toTime(x === undefined ? LABEL + (s.width - LABEL) / 2 : Math.max(LABEL, x));
    const whole = s.trace.to - s.trace.from, span = Math.min(whole, Math.max(20, (s.to - s.from) * factor));
    const share = (at - s.from) / (s.to - s.from);
    s.from = at - share * span;
    s.to = s.from + span;
    clampView();
    redraw();
  }

  function pan(share) {
    const by = (s.to - s.from) * share;
    s.from += by;
    s.to += by;
    clampView();
    redraw();
  }

  function fit() {
    s.from = s.trace.from;
    s.to = s.trace.to;
    clampView();
    redraw();
  }

  function hit(x, y) {
    const t = s.trace;
    if (!t || x < LABEL || y < HEAD - 4) return -1;
    const at = toTime(x), slack = (s.to - s.from) / (s.width - LABEL) * 2;
    for (const track of t.tracks) {
      const top = track.y - s.scroll;
      if (y < top || y >= top + ROW) continue;
      let best = -1, far = slack;
      for (let i = firstEndingAfter(t, track.first, track.end, at - slack); i < track.end && t.start[i] <= at + slack; i++) {
        const away = Math.max(t.start[i] - at, at - t.start[i] - t.dur[i], 0);
        if (away <= far) { best = i; far = away; }
        if (away === 0) break;
      }
      return best;
    }
    return -1;
  }

  // Brings an event into view without changing the zoom unless it would be smaller than a few pixels.
  function reveal(i, whole) {
    const t = s.trace, span = s.to - s.from, track = t.tracks[t.trackOf[i]];
    if (whole || t.dur[i] < span / s.width * 2) {
      const wanted = Math.max(50, t.dur[i] * (whole ? 1.25 : 60));
      s.from = t.start[i] + t.dur[i] / 2 - wanted / 2;
      s.to = s.from + wanted;
    } else if (t.start[i] < s.from || t.start[i] > s.to) {
      s.from = t.start[i] + Math.min(t.dur[i], span) / 2 - span / 2;
      s.to = s.from + span;
    }
    const y = track.y - s.scroll;
    if (y < HEAD || y + ROW > s.height) s.scroll = track.y - s.height / 2;
    clampView();
    redraw();
  }

  function choose(i) {
    s.chosen = i;
    onChoose(s.trace, i);
    redraw();
  }

  // Arrow keys: along the track, or to what lies above or below at the same time.
  function step(dx, dy) {
    const t = s.trace;
    let i = s.chosen;
    if (i < 0) {
      i = t.tracks.length ? Math.min(firstEndingAfter(t, t.tracks[0].first, t.tracks[0].end, s.from), t.tracks[0].end - 1) : -1;
    } else if (dx) {
      const track = t.tracks[t.trackOf[i]];
      i = Math.min(track.end - 1, Math.max(track.first, i + dx));
    } else {
      const at = t.start[i], k = t.trackOf[i] + dy;
      if (k < 0 || k >= t.tracks.length) return;
      i = Math.min(firstEndingAfter(t, t.tracks[k].first, t.tracks[k].end, at), t.tracks[k].end - 1);
    }
    if (i < 0) return;
    choose(i);
    reveal(i, false);
  }

  readColors();
  return {state: s, setTrace, resize, redraw, draw, zoom, pan, fit, hit, choose, reveal, step, clampView,
          recolor() { readColors(); redraw(); }};
}
