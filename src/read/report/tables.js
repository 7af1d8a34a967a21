// Tables of what the analyses found: real tables with captions, sortable by their heads.
'use strict';

function make(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (k === 'text') e.textContent = v; else if (k === 'class') e.className = v; else e.setAttribute(k, v);
  }
  for (const c of children) if (c !== null && c !== undefined) e.append(c);
  return e;
}

const isNumber = v => typeof v === 'number' && isFinite(v);
const micro = v => isNumber(v) ? v.toLocaleString('en', {minimumFractionDigits: 1, maximumFractionDigits: v < 10 ? 3 : 1}) : 'unknown';
const whole = v => isNumber(v) ? v.toLocaleString('en', {maximumFractionDigits: 0}) : 'unknown';
const share = v => isNumber(v) ? (v * 100).toFixed(1) + ' %' : 'unknown';
const bytes = v => {
  if (!isNumber(v)) return 'unknown';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let k = 0;
  while (Math.abs(v) >= 1000 && k < 4) { v /= 1000; k++; }
  return v.toFixed(k ? 2 : 0) + ' ' + units[k];
};
const plain = v => v instanceof Node ? v.textContent : v === null || v === undefined ? '' : Array.isArray(v) ? v.map(plain).join(', ') : typeof v === 'object' ? JSON.stringify(v) : String(v);

// A kernel's name of C++ templates fills a page: its start is enough until it is asked for. A name may also be empty.
const NAME_LENGTH = 140;
function nameNode(text, first) {
  if (text.length <= NAME_LENGTH) return document.createTextNode(text === '' && first ? '""' : text);
  return make('details', {class: 'long'}, make('summary', {text: text.slice(0, NAME_LENGTH - 20) + '\u2026'}), text);
}

// columns: [key or function, head, format]; a format makes the column one of numbers.
function table(caption, columns, rows, most) {
  const value = (row, c) => typeof c[0] === 'function' ? c[0](row) : row[c[0]];
  const shown = most && rows.length > most ? rows.slice(0, most) : rows;
  const body = make('tbody'), heads = [];
  const fill = list => body.replaceChildren(...list.map(row => make('tr', {}, ...columns.map((c, k) => {
    const v = value(row, c), text = c[2] ? c[2](v) : plain(v);
    const cell = make(k === 0 ? 'th' : 'td', {class: c[2] ? 'n' : 'name', text});
    if (v instanceof Node) cell.replaceChildren(v);
    else if (!c[2]) cell.replaceChildren(nameNode(text, k === 0));
    if (k === 0) { cell.scope = 'row'; cell.style.fontWeight = 'normal'; }
    if (c[3]) cell.classList.add(c[3](v));
    return cell;
  }))));
  const sort = k => {
    const up = heads[k].getAttribute('aria-sort') !== (columns[k][2] ? 'descending' : 'ascending') ? (columns[k][2] ? -1 : 1) : (columns[k][2] ? 1 : -1);
    heads.forEach(h => h.setAttribute('aria-sort', 'none'));
    heads[k].setAttribute('aria-sort', up > 0 ? 'ascending' : 'descending');
    const key = row => { const v = value(row, columns[k]); return columns[k][2] ? (isNumber(v) ? v : -Infinity) : plain(v); };
    fill([...shown].sort((a, b) => { const x = key(a), y = key(b); return x < y ? -up : x > y ? up : 0; }));
  };
  columns.forEach((c, k) => {
    const button = make('button', {type: 'button', text: c[1]});
    button.addEventListener('click', () => sort(k));
    heads.push(make('th', {scope: 'col', class: c[2] ? 'n' : '', 'aria-sort': 'none'}, button));
  });
  fill(shown);
  const more = shown.length < rows.length ? ` The first ${shown.length} of ${rows.length}.` : '';
  return make('div', {class: 'wide'}, make('table', {}, make('caption', {text: caption + more}), make('thead', {}, make('tr', {}, ...heads)), body));
}

let sectionCount = 0;
function section(title, ...content) {
  const id = 's' + ++sectionCount;
  return make('section', {'aria-labelledby': id}, make('h2', {id, text: title}), ...content);
}

function chips(pairs) {
  return make('div', {class: 'chips'}, ...pairs.filter(p => p[1] !== null && p[1] !== undefined && p[1] !== '').map(([k, v]) => make('span', {class: 'chip'}, k + ' ', make('b', {text: v}))));
}

function summaryOf(e) {
  if (!e) return make('p', {class: 'note', text: 'No analysis is in this report.'});
  const h = e.health || {}, d = (e.devices || [])[0] || {};
  const notes = (h.notes || []).map(n => make('li', {text: plain(n)}));
  return make('div', {}, chips([
    ['span', isNumber(e.span_us) ? duration(e.span_us * 1e3) : null],
    ['events', isNumber(h.events) ? whole(h.events) : null],
    ['kernels', isNumber(h.kernels) ? whole(h.kernels) : null],
    ['launches', isNumber(h.launches) ? whole(h.launches) : null],
    ['device', d.name || null],
    ['device busy', isNumber(d.busy_us) ? duration(d.busy_us * 1e3) : null],
    ['ceilings', e.machine && e.machine.name ? e.machine.name : null],
    ['idle', isNumber(d.idle_share) ? share(d.idle_share) : null],
    ['complete', h.complete === undefined ? null : h.complete ? 'yes' : 'no'],
    ['totals', h.partial ? 'partial' : null],
    ['repairs', (h.repairs || []).length ? whole(h.repairs.reduce((n, r) => n + (r.count || 0), 0)) : null],
  ]), notes.length ? make('ul', {}, ...notes) : null);
}

const sum = (list, key) => list.reduce((n, r) => n + (isNumber(r[key]) ? r[key] : 0), 0);

// What was guessed wrong stands above everything else, the biggest surprise first.
function surpriseOf(v, show) {
  if (!v || !Array.isArray(v.verdicts)) return null;
  const broken = v.verdicts.filter(r => r.verdict === 'broken'), all = v.verdicts.length;
  if (!broken.length) return make('p', {class: 'surprise', text: v.unknown ? `No claim is broken; ${plain(v.unknown)} of ${all} could not be decided.` : `The guess held: ${all} of ${all} claims.`});
  return make('div', {class: 'surprise', role: 'note'}, make('p', {}, make('b', {class: 'broken', text: `${broken.length} of ${all} claims broken`})),
    make('ol', {}, ...broken.slice(0, 5).map(r => make('li', {}, `The guess was \u201c${plain(r.claim)}\u201d; seen: ${plain(r.seen)}. `, eventButton(r, show)))));
}

function eventButton(r, show) {
  if (!r.event || r.event.name === undefined) return null;
  const b = make('button', {type: 'button', text: `${r.event.name.slice(0, 80)} at ${r.event.start_us} \u00b5s, ${r.event.lane}`});
  b.addEventListener('click', () => show(r.event));
  return b;
}

// `show` brings the event that broke a claim into the timeline.
function verdictTable(v, show) {
  if (!v || !Array.isArray(v.verdicts)) return null;
  return section('Verdicts', table(`${plain(v.broken)} broken, ${plain(v.confirmed)} confirmed, ${plain(v.unknown)} unknown; the biggest surprise first.`, [
    ['claim', 'Claim'], ['verdict', 'Verdict', null, x => plain(x)], ['expected', 'Expected'], ['seen', 'Seen'],
    [r => eventButton(r, show) || plain(r.event), 'Shown by'],
    ['line', 'Line', whole]], v.verdicts));
}

function rangeOf(list) {
  const v = (list || []).filter(isNumber);
  if (!v.length) return null;
  const low = v.reduce((a, b) => a < b ? a : b), high = v.reduce((a, b) => a > b ? a : b);
  return low === high ? String(low) : `${low} to ${high}`;
}

function explainTables(e) {
  if (!e) return [];
  const out = [], kernels = e.kernels || [], all = sum(kernels, 'total_us') || 1;
  const device = !e.health || e.health.device_recorded !== false; // else its columns would hold nothing but zeros
  const onDevice = (...columns) => device ? columns : [];
  const add = (title, rows, ...content) => { if (rows && rows.length) out.push(section(title, ...content)); };
  add('Findings', e.findings, make('ol', {class: 'findings'}, ...(e.findings || []).map(f => make('li', {}, plain(f.sentence),
    (f.evidence || []).length ? make('details', {}, make('summary', {text: 'Evidence'}), make('ul', {}, ...f.evidence.map(x => make('li', {text: plain(x)})))) : null))));
  add('Regions', e.regions, table(device ? 'Each named span, with what its instances launched, on any thread of their process.' : 'Each named span: time of all its instances.', [
    ['name', 'Region'], ['count', 'Instances', whole], ...onDevice([r => rangeOf(r.kernels_per_instance_any_thread), 'Kernels each'],
      [r => rangeOf(r.launches_per_instance), 'Launches of its thread']), ['cpu_us', 'Host \u00b5s', micro], ...onDevice(['device_us_any_thread', 'Device \u00b5s', micro], ['bound', 'Bound by'])], e.regions || [], 300));
  add('Kernels', kernels, table('By total time.', [
    ['name', 'Kernel'], [r => r.class || (r.vendor && (r.vendor.class || r.vendor.class_name)), 'Class'], ['count', 'Count', whole], ['total_us', 'Total \u00b5s', micro],
    [r => isNumber(r.total_us) ? r.total_us / all : null, 'Share', share], [r => isNumber(r.total_us) && r.count ? r.total_us / r.count : null, 'Each \u00b5s', micro],
    [r => (r.ops || []).map(o => typeof o === 'object' ? o.name || o.op : o), 'Called by']], kernels, 300));
  const worked = kernels.filter(k => k.work && k.work.to_win_us > 0).sort((a, b) => b.work.to_win_us - a.work.to_win_us);
  add('Furthest from the bound', worked, table('Kernels whose work is known, those first that could win most at the ceilings of the device.', [
    [r => shownName(r.name), 'Kernel'], [r => r.work.count, 'Count', whole], [r => r.work.us, 'Each \u00b5s', micro], [r => r.work.tflops, 'TFLOP/s', micro],
    [r => r.work.gbs, 'GB/s', micro], [r => r.work.bound_us, 'Bound \u00b5s', micro], [r => r.work.bound, 'Bound by'], [r => r.work.to_win_us, 'To win \u00b5s', micro]], worked, 200));
  add('Ops', e.ops, table('By self time on the host.', [
    ['name', 'Op'], ['count', 'Count', whole], ['self_us', 'Self \u00b5s', micro], ['total_us', 'Total \u00b5s', micro],
    ...onDevice(['device_us', 'Device \u00b5s', micro], ['kernels', 'Kernels', whole], ['self_kernels', 'Own kernels', whole])], e.ops || [], 300));
  const both = (e.ops || []).filter(o => o.backward);
  add('Forward and backward', both, table('What an op costs there and back: its backward ops count for it and for the ops around it.', [
    ['name', 'Op'], ['count', 'Count', whole], ['total_us', 'Host forward \u00b5s', micro], [r => r.backward.total_us, 'Host backward \u00b5s', micro],
    ...onDevice(['device_us', 'Device forward \u00b5s', micro], [r => r.backward.device_us, 'Device backward \u00b5s', micro],
      ['kernels', 'Kernels forward', whole], [r => r.backward.kernels, 'Kernels backward', whole])], both, 200));
  add('Ops that launch nothing', e.views, table('No kernel runs for them: views and the like, and ops that only copy or clear memory.', [
    ['name', 'Op'], ['count', 'Count', whole], ['with_copies_or_memsets', 'With a copy or memset', whole], ['self_us', 'Self \u00b5s', micro]], e.views || [], 200));
  add('Fusion', e.fusions, table('Kernels that hand their result to the next through memory, and what one kernel would save at most.', [
    [r => (r.ops || []).map(plain).join(' \u2192 '), 'Ops'], [r => (r.kernels || []).map(k => shownName(plain(k))).join(', '), 'Kernels'], ['instances', 'Instances', whole],
    ['intermediate_bytes', 'Intermediate', bytes], ['bytes_saved', 'Bytes saved', bytes], ['us_saved', '\u00b5s saved', micro], ['blocked_by', 'Blocked by']], e.fusions || [], 200));
  add('Gated MLPs', e.gated_mlps, table('Found by shape: what a block takes now, and what one fused block would take at least.', [
    ['form', 'Form'], ['act', 'Activation'], ['dtype', 'Type'], ['rows', 'Rows', whole], ['dim', 'Dim', whole], ['hidden', 'Hidden', whole],
    ['count', 'Count', whole], ['us', 'Now \u00b5s', micro], ['gemm_us', 'Products \u00b5s', micro], ['pointwise_us', 'Pointwise \u00b5s', micro],
    ['fused_bound_us', 'Least fused \u00b5s', micro], ['intermediate_bytes', 'Intermediate', bytes]], e.gated_mlps || [], 100));
  add('Matrix products', e.gemms, table('From the recorded shapes.', [
    ['op', 'Op'], ['m', 'M', whole], ['n', 'N', whole], ['k', 'K', whole], ['dtype', 'Type'], ['epilogue', 'Epilogue'], ['count', 'Count', whole], ['us', '\u00b5s', micro],
    ['tflops', 'TFLOP/s', micro], ['bound_us', 'Bound \u00b5s', micro], ['kernel', 'Kernel']], e.gemms || [], 200));
  add('Memory', e.memory, table('What the allocators held, from the events of profile_memory.', [
    ['device', 'Device'], ['peak_bytes', 'At most', bytes], ['peak_us', 'At \u00b5s', micro], ['op', 'In op'], ['outer_op', 'Outermost op'], ['region', 'Region'],
    ['start_bytes', 'Before the first event', bytes], ['end_bytes', 'After the last', bytes], ['reserved_bytes', 'Reserved at most', bytes], ['events', 'Events', whole]], e.memory || [], 100));
  add('Compiled code', e.compiled, table('Host time of one call, in the median.', [
    ['name', 'Name'], ['calls', 'Calls', whole], ['entries', 'Entries', whole], ['call_us', 'Call \u00b5s', micro], ['lookup_us', 'Lookup \u00b5s', micro],
    ['guard_us', 'Guards \u00b5s', micro], ['prologue_us', 'Prologue \u00b5s', micro]], e.compiled || [], 100));
  add('Recompiles', e.recompiles, table('Compilation in steady state.', Object.keys((e.recompiles || [{}])[0] || {}).map(k => [k, k]), e.recompiles || [], 100));
  return out;
}

function diffTables(d) {
  if (!d || !Array.isArray(d.regions)) return [];
  const says = Array.isArray(d.sentences) ? make('ul', {}, ...d.sentences.map(x => make('li', {text: plain(x)}))) : make('p', {text: plain(d.summary)});
  const rows = [];
  for (const r of d.regions) for (const p of r.pairs || []) rows.push(Object.assign({region: r.name}, p));
  const names = list => (Array.isArray(list) ? list : [list]).map(x => shownName(x && typeof x === 'object' ? x.name || x.kernel || JSON.stringify(x) : plain(x))).join(', ');
  return [section('Difference', says, table('Aligned by structure: first trace against second.', [
    ['region', 'Region'], ['relation', 'Relation'], [r => names(r.a), 'First'], [r => names(r.b), 'Second'],
    ['us_a', 'First \u00b5s', micro], ['us_b', 'Second \u00b5s', micro], ['bytes_saved', 'Bytes saved', bytes]], rows, 400))];
}
