// page.js - the dashboard: shows the events of the server
//
// The server sends what is new since the last event, and everything to a new page. The
// browser reconnects by itself and sends the number of its last event, so a page that was
// disconnected continues from there.  Nothing from the stream is ever used as HTML.
//
// Charts are drawn by dygraphs.  It gets as many points as a chart has pixels for: of a
// stretch with more, the least and the largest.  A zoom chooses from all points again.
'use strict';

const $ = id => document.getElementById(id);
const SLOTS_MAX = 120, LOG_MAX = 200;
const seen = {runs: new Map(), log: [], last: null};
let chosen = null;          // number of the run that is shown; null: the newest
let refused = '';           // why the server sends nothing

// ---- words ----

function short(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace('e+', 'e');
  if (size >= 1000) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(digits)));
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  if (seconds < 1e-3) return short(seconds * 1e6, 3) + ' µs';
  if (seconds < 1) return short(seconds * 1e3, 3) + ' ms';
  if (seconds < 60) return short(seconds, 3) + ' s';
  const s = Math.round(seconds), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return (h ? h + ' h ' : '') + m + ' min ' + (h ? '' : (s % 60) + ' s');
}

function clock(time) {
  return new Date((seen.last.wall + time) * 1000).toTimeString().slice(0, 8);
}

const doings = {start: ['starting', 'on'], train: ['training', 'on'], validate: ['validating', 'on'],
  test: ['testing', 'on'], predict: ['predicting', 'on'], paused: ['paused', 'warn'], rollback: ['rolling back', 'warn'],
  ok: ['done', 'ok'], stopped: ['stopped', 'warn'], failed: ['failed', 'failed']};

function doing(run) {
  return doings[run.doing] || [run.doing, 'on'];
}

// ---- elements ----

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// Changes a text only when it differs, so that a selection or a screen reader keeps its place.
function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function row(cells) {
  const tr = element('tr');
  for (const [text, className] of cells) tr.append(element('td', text, className));
  return tr;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// ---- events of the server ----

function keep(list, more, most) {
  list.push(...more);
  if (list.length > most) list.splice(0, list.length - most);
}

function take(state) {
  if (state.since === 0) {
    seen.runs.clear();
    seen.log = [];
  }
  seen.last = state;
  keep(seen.log, state.log, LOG_MAX);
  for (const run of state.runs) {
    const old = seen.runs.get(run.number) || {curves: curvesNew(), strip: [], saves: [], options: null, drawings: new Map(), drawn: 0};
    const curves = run.whole ? curvesNew() : old.curves, strip = old.strip;
    const saves = run.saves.length ? run.saves : old.saves;     // all, once one has changed
    curvesTake(curves, run);
    delete run.points;
    for (const {name, value} of run.drawings) old.drawings.set(name, value);
    const drawn = old.drawn + (run.drawings.length || run.class_names ? 1 : 0);
    keep(strip, run.strip, SLOTS_MAX);
    seen.runs.set(run.number, Object.assign(run, {curves, strip, saves, options: run.options || old.options,
      drawings: old.drawings, class_names: run.class_names || old.class_names, drawn}));
  }
  for (const number of seen.runs.keys())
    if (!state.runs.some(run => run.number === number)) seen.runs.delete(number);
  if (!state.more) showSoon();      // else the next part is on its way
}

// Points of a run: their places on the axes; for each metric, the points that have a value, and the values.
function curvesNew() {
  return {step: [], epoch: [], time: [], metrics: new Map()};
}

function curvesTake(curves, run) {
  const metrics = run.columns.map(({name}) => {
    if (!curves.metrics.has(name)) curves.metrics.set(name, {at: [], y: []});
    return curves.metrics.get(name);
  });
  for (const [time, step, epoch, ...values] of run.points) {
    const at = curves.step.length;
    curves.time.push(time - run.began);
    curves.step.push(step);
    curves.epoch.push(epoch);
    values.forEach((y, k) => {
      if (y === null) return;
      metrics[k].at.push(at);
      metrics[k].y.push(y);
    });
  }
}

function current() {
  if (seen.runs.has(chosen)) return seen.runs.get(chosen);
  const all = [...seen.runs.values()], living = all.filter(run => !run.ended);
  const among = living.length ? living : all;
  return among.reduce((newest, run) => (!newest || run.number > newest.number ? run : newest), null);
}

function newest(run, name) {
  const column = run.columns.find(c => c.name === name || (name.endsWith('*') && c.name.startsWith(name.slice(0, -1))));
  return column ? column.newest : null;
}

// ---- the summary ----

function title(run) {
  return 'Run ' + (run.name || run.number);
}

// The options of a run by their full names; a list is one value.
function flat(options, before = '', all = new Map()) {
  for (const [name, value] of Object.entries(options || {}))
    if (value && typeof value === 'object' && !Array.isArray(value)) flat(value, before + name + '.', all);
    else all.set(before + name, value);
  return all;
}

// The value of an option in the form of a run file: 1e-3, not 0.001.
function written(value) {
  if (value === undefined) return 'default';
  if (typeof value === 'number' && value !== 0 && (Math.abs(value) < 0.01 || Math.abs(value) >= 1e6))
    return value.toExponential().replace('e+', 'e');
  return typeof value === 'string' ? value : JSON.stringify(value);
}

const notSettings = /^trainer\.(run_name|default_root_dir)$/;

// The options in which each run differs from the others, by number: 'lr=1e-3'; if there are none, its name.
function labels(runs) {
  const all = runs.map(run => flat(run.options)), keys = new Set(all.flatMap(options => [...options.keys()]));
  const differs = key => new Set(all.map(options => JSON.stringify(options.get(key)))).size > 1;
  const known = runs.every(run => run.options);
  const apart = known ? [...keys].filter(key => !notSettings.test(key) && differs(key)) : [];
  const last = key => key.split('.').pop();
  const name = key => (apart.filter(other => last(other) === last(key)).length > 1 ? key.split('.').slice(-2).join('.') : last(key));
  const texts = runs.map((run, k) => apart.slice(0, 3).map(key => name(key) + '=' + written(all[k].get(key))).join(' ')
    + (apart.length > 3 ? ' …' : ''));
  return new Map(runs.map((run, k) => [run.number,
    !texts[k] ? title(run) : texts.filter(text => text === texts[k]).length > 1 ? texts[k] + ' (' + (run.name || run.number) + ')' : texts[k]]));
}

function allRuns() {
  return [...seen.runs.values()].sort((a, b) => b.number - a.number);
}

function showRuns(run) {
  const nav = $('runs'), all = allRuns(), label = labels(all);
  const wanted = all.length > 1 ? all : [];
  const key = wanted.map(r => r.number + label.get(r.number) + r.doing).join() + (run && run.number);
  if (nav.dataset.key === key) return;
  const focused = document.activeElement && document.activeElement.dataset.run;
  nav.dataset.key = key;
  nav.replaceChildren(...wanted.map(r => {
    const button = element('button', label.get(r.number) + ' · ' + doing(r)[0]);
    button.type = 'button';
    button.title = title(r);
    button.dataset.run = r.number;
    if (r === run) button.setAttribute('aria-current', 'true');
    button.addEventListener('click', () => { chosen = r.number; view.window = null; show(); });
    return button;
  }));
  if (focused) for (const button of nav.children) if (button.dataset.run === focused) button.focus();
}

function counted(count, what) {
  return count.toLocaleString('en') + ' ' + what + (count === 1 ? '' : 's');
}

// How a run ended, what it did and what it left; '': it is active, or its error says so.
function ending(run) {
  if (!run.ended || run.epochs === null) return '';
  const word = {ok: 'Done', stopped: 'Stopped', failed: 'Failed'}[run.doing];
  const saved = run.saves.filter(save => !save.failed && !save.removed).pop();
  return word + ' after ' + counted(run.epochs, 'epoch') + ', ' + counted(run.step, 'step') + (run.reason ? ': ' + run.reason : '') + '. '
    + (saved ? 'Newest checkpoint: ' + saved.text.split('/').pop() + '.' : 'No checkpoint was saved.');
}

// The epochs done of a run that has ended; the current epoch of an active run, and its progress.
function epochs(run) {
  if (run.ended && run.epochs !== null) return run.epochs + ' done';
  return String(run.epoch + 1) + (run.batches && !/^(val|test|predict)/.test(run.doing) ? ' · ' + Math.floor(100 * run.batch / run.batches) + ' %' : '');
}

// Why a run does not progress; '': it does.
function amiss(run) {
  if (run.ended) return '';
  const said = run.stalled ? ['No progress for ' + duration(run.stalled) + '.'] : [];
  return said.concat(run.absent.map(a => 'Rank ' + a.rank + ': ' + a.event + ', last message ' + duration(a.seconds) + ' ago; ' + a.text + '.')).join(' ');
}

function showSummary(run) {
  const [word, state] = run ? doing(run) : ['idle', 'idle'];
  say($('run-name'), run ? title(run) : 'No run yet');
  say($('doing'), word);
  $('doing').dataset.state = state;
  say($('module'), run ? [run.module, run.dir].filter(Boolean).join(' · ') : '');
  $('error').hidden = !run || !run.error;
  say($('error'), run ? run.error : '');
  $('ending').hidden = !run || !ending(run);
  say($('ending'), run ? ending(run) : '');
  $('amiss').hidden = !run || !amiss(run);
  say($('amiss'), run ? amiss(run) : '');
  document.title = run ? word + ' · ' + title(run) + ' · Paceline' : 'Paceline';
  const share = run && run.total_steps ? Math.min(1, run.step / run.total_steps) : 0;
  $('bar').style.width = share * 100 + '%';
  $('progress').setAttribute('aria-valuenow', Math.round(share * 100));
  const cards = !run ? [] : [
    ['Step', run.step.toLocaleString('en') + (run.total_steps ? ' / ' + run.total_steps.toLocaleString('en') : '')],
    ['Epoch', epochs(run)],
    ['Loss', short(newest(run, 'train_loss*'))],
    ['Validation loss', short(newest(run, 'val_loss'))],
    ['Learning rate', short(newest(run, 'lr*'))],
    ['Samples/s', run.doing === 'paused' ? '–' : short(newest(run, 'samples_per_second'), 3)],
    ['Step time p50, now', run.doing === 'paused' || run.stalled ? '–' : duration(newest(run, 'step_seconds_p50'))],
    ['Step time p95, now', run.doing === 'paused' ? '–' : duration(newest(run, 'step_seconds_p95'))],
    ['Step time p50, run', duration(run.run_p50)],
    ['Step time p95, run', duration(run.run_p95)],
    ['Time elapsed', duration(run.seconds)],
    ['Time left', run.ended || run.stalled || !share || run.step < 2 ? '–' : duration(run.seconds * (1 - share) / share)]];
  const list = $('cards');
  if (list.children.length !== cards.length)
    list.replaceChildren(...cards.map(([name]) => {
      const card = element('div');
      card.append(element('dt', name), element('dd'));
      return card;
    }));
  cards.forEach(([, value], k) => say(list.children[k].lastChild, value));
}

// ---- commands ----

async function send(request) {
  const response = await fetch('command', {method: 'POST', headers: {'Content-Type': 'application/json', 'X-Paceline': '1'},
    body: JSON.stringify(request)});
  if (!/json/.test(response.headers.get('Content-Type'))) throw new Error(await response.text());
  const reply = await response.json();
  if (reply.error) throw new Error(reply.error.text);
  return reply;
}

// The engine has its own numbers for active runs: of several runs it is the one with the same folder.
async function command(word, run) {
  const {runs} = await send({command: 'list'});
  const meant = runs.length === 1 ? runs[0] : runs.find(r => r.run_dir && r.run_dir === run.dir);
  if (!meant) throw new Error(title(run) + ' is not active.');
  return send(word === 'stop' ? {command: word, run: meant.run, reason: 'requested on the dashboard'} : {command: word, run: meant.run});
}

const buttons = [
  {word: 'pause', text: 'Pause', shown: run => run.doing !== 'paused'},
  {word: 'continue', text: 'Continue', shown: run => run.doing === 'paused'},
  {word: 'save', text: 'Save', shown: () => true},
  {word: 'stop', text: 'Stop', shown: () => true, danger: true, ask: 'Stop this run after the current step?'}];

const busy = new Set();     // buttons whose command is under way

function buttonMake(spec) {
  const button = element('button', spec.text, spec.danger ? 'danger' : '');
  button.type = 'button';
  button.id = 'do-' + spec.word;
  // The property "disabled" would take the focus from the button.
  button.addEventListener('click', async () => {
    const run = current();
    if (!run || button.ariaDisabled === 'true' || (spec.ask && !window.confirm(spec.ask))) return;
    busy.add(button);
    showButtons(run);
    try {
      await command(spec.word, run);
      notice('');
    } catch (error) {
      notice(spec.text + ': ' + error.message);
    }
    busy.delete(button);
    showButtons(current());
  });
  return button;
}

function showButtons(run) {
  const had = document.activeElement;
  for (const spec of buttons) {
    const button = $('do-' + spec.word);
    button.hidden = !run || run.ended || !spec.shown(run);
    button.ariaDisabled = String(busy.has(button) || $('link').dataset.state !== 'live');
  }
  // The element with the focus was removed: its successor gets the focus.
  if (had.hidden && had.parentElement === $('buttons'))
    ($('buttons').querySelector('button:not([hidden])') || $('run-name')).focus();
}

// ---- metrics ----

const parts = {train: 'training', val: 'validation', test: 'test', predict: 'prediction'};

// Metrics that the engine measures, by the name of their chart: title, unit, factor of the values, and the
// steps that they describe.
const known = {
  loss: ['Loss', ''], acc: ['Accuracy', ''], confusion: ['Confusion matrix', ''], roc: ['ROC curve', ''], pr_curve: ['Precision by recall', ''],
  auroc: ['Area under the ROC curve', ''], mcc: ['Matthews correlation', ''], lr: ['Learning rate', ''], grad_norm: ['Gradient norm', ''],
  samples_per_second: ['Throughput', 'samples/s'], tokens_per_second: ['Tokens per second', 'tokens/s'],
  step_seconds: ['Step time', 'ms', 1e3, 'recent steps'], steps_per_second: ['Steps per second', 'steps/s'],
  model_flops_per_second: ['Model FLOP rate', 'GFLOP/s', 1e-9], model_flops_utilization: ['Model FLOP utilization', ''],
  cpu_percent: ['CPU use', '%'], memory_rss_mb: ['Memory in use', 'MB'], memory_peak_mb: ['Memory peak', 'MB'],
  memory_available_mb: ['Memory available', 'MB'], device_utilization_percent: ['Device use', '%'],
  device_memory_used_mb: ['Device memory in use', 'MB'], device_memory_free_mb: ['Device memory free', 'MB'],
  device_power_watts: ['Device power', 'W'], device_temperature_celsius: ['Device temperature', '°C'], skipped_steps: ['Skipped steps', '']};

const units = [[/_per_second$/, '/s'], [/_seconds$/, 's'], [/_mb$/, 'MB'], [/_bytes$/, 'B'], [/_percent$/, '%']];

function inWords(name) {
  const unit = units.find(([pattern]) => pattern.test(name));
  const words = (unit && unit[1] !== '/s' ? name.replace(unit[0], '') : name).replace(/[_]+/g, ' ').trim() || name;
  return [words[0].toUpperCase() + words.slice(1), unit ? unit[1] : ''];
}

// The chart that a metric belongs to and its name there: training and validation of one metric share a chart.
function metricOf(name) {
  const [, part, whole] = /^(?:(train|val|test|predict)_)?(.*)$/.exec(name);
  const rest = part ? whole.replace(/(.)_epoch$/, '$1') : whole;
  const several = /^(lr|grad_norm|step_seconds)(?:[-_/](.*))?$/.exec(rest);
  const key = several ? several[1] : rest, [title, unit, scale, when] = known[key] || inWords(key);
  const label = [part ? parts[part] : '', several && several[2] ? several[2] : '', rest !== whole ? 'epoch mean' : ''].filter(Boolean).join(', ');
  return {key, name, title, unit, when, scale: scale || 1, part: part || '', label, isMean: rest !== whole};
}

const first = ['loss', 'acc'], last = ['lr', 'grad_norm', 'samples_per_second', 'tokens_per_second', 'step_seconds', 'steps_per_second'];

// The order of the charts: loss, accuracy, other metrics of a module, then the speed of the run.
function rank(metric) {
  if (first.includes(metric.key)) return first.indexOf(metric.key);
  if (/loss/.test(metric.key)) return 2;
  if (metric.part) return 3;
  return last.includes(metric.key) ? 4 + last.indexOf(metric.key) : 20;
}

function inOrder(a, b) {
  const order = ['train', 'val', 'test', 'predict', ''];
  return rank(a) - rank(b) || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0) || order.indexOf(a.part) - order.indexOf(b.part)
    || a.isMean - b.isMean || (a.name < b.name ? -1 : 1);
}

// ---- charts ----

const COLOURS = 8, FEW = 60;
const windows = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000];       // of smoothing, points
// window: [from, to] on the axis; null: everything.
const view = {axis: 'step', smooth: 1, window: null, compares: false, logs: new Set()};
const charts = new Map();           // by key: {figure, plot, graph, …}

// Training and validation have the same colours in all charts.
function colourOf(metric, k) {
  const own = ['train', 'val', 'test'].indexOf(metric.part);
  return metric.isMean ? (own + 3) % COLOURS : own >= 0 ? own : k % COLOURS;
}

// The series of all charts, by key: of the run that is shown, or of all runs.
function chartSeries(runs, label) {
  const all = new Map(), several = runs.length > 1;
  runs.forEach((run, n) => {
    const metrics = [...run.curves.metrics.keys()].map(metricOf).sort(inOrder);
    for (const metric of metrics) {
      const {at, y} = run.curves.metrics.get(metric.name);
      if (!at.length) continue;
      if (!all.has(metric.key)) all.set(metric.key, {metric, series: []});
      const own = all.get(metric.key).series;
      own.push({run, metric, at, y, several, colour: several ? n % COLOURS : colourOf(metric, own.length),
        dashes: several ? (metric.part === 'val' || /p95/.test(metric.label) ? [6, 4] : metric.isMean || n >= COLOURS ? [2, 3] : null) : null,
        label: (several ? label.get(run.number) + (metric.label ? ', ' : '') : '') + (metric.label || (several ? '' : metric.title))});
    }
  });
  return new Map([...all].sort(([, a], [, b]) => inOrder(a.metric, b.metric)));
}

// The mean of each value and the values before it, `count` in total.
function smoothed(y, count) {
  const means = new Array(y.length);
  let sum = 0;
  for (let k = 0; k < y.length; k++) {
    sum += y[k] - (k >= count ? y[k - count] : 0);
    means[k] = sum / Math.min(k + 1, count);
  }
  return means;
}

function valuesOf(series) {
  const key = view.smooth + ':' + series.y.length, curve = series.run.curves.metrics.get(series.metric.name);
  if (view.smooth === 1 || series.y.length <= FEW) return series.y;
  if (curve.smoothKey !== key) {
    curve.smooth = smoothed(series.y, view.smooth);
    curve.smoothKey = key;
  }
  return curve.smooth;
}

function axisOf(series) {
  return series.run.curves[view.axis];
}

function extent(all) {
  let from = Infinity, to = -Infinity;
  for (const {series} of all.values())
    for (const one of series) {
      const x = axisOf(one);
      for (const at of [one.at[0], one.at[one.at.length - 1]]) {
        from = Math.min(from, x[at]);
        to = Math.max(to, x[at]);
      }
    }
  if (from > to) return [0, 1];
  if (from === to) return [from - 0.5, to + 0.5];
  return [Math.min(from, view.axis === 'step' ? from : 0), to + (to - from) * 0.01];
}

// Adds the points of a curve in a range of the axis to rows: all points if there is room for them, else the least and
// the largest of each of `most` pieces.
function rowsTake(rows, width, column, x, at, y, scale, [from, to], most) {
  const inside = [];
  let before = -1, behind = -1;
  for (let k = 0; k < at.length; k++) {
    const place = x[at[k]];
    if (place < from) before = k;
    else if (place > to) { if (behind < 0) behind = k; }
    else inside.push(k);
  }
  const put = k => {
    const place = x[at[k]];
    if (!rows.has(place)) rows.set(place, new Array(width).fill(null));
    rows.get(place)[column] = y[k] * scale;
  };
  const thin = (list, pieces, a, b) => {
    if (list.length <= 2 * pieces || b <= a) return list.forEach(put);
    const least = new Array(pieces).fill(-1), largest = new Array(pieces).fill(-1);
    for (const k of list) {
      const piece = Math.min(pieces - 1, Math.max(0, Math.floor((x[at[k]] - a) / (b - a) * pieces)));
      if (least[piece] < 0 || y[k] < y[least[piece]]) least[piece] = k;
      if (largest[piece] < 0 || y[k] > y[largest[piece]]) largest[piece] = k;
    }
    for (let piece = 0; piece < pieces; piece++)
      if (least[piece] >= 0) { put(least[piece]); put(largest[piece]); }
    put(list[list.length - 1]);
  };
  thin(inside, most, from, to);
  // Points outside are needed while a chart is dragged, and for lines that leave it.
  if (before >= 0) put(before);
  if (behind >= 0) put(behind);
}

function fade(colour) {
  return colour + '55';
}

const niceTimes = [1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400];

function niceStep(span, count, axis) {
  const least = span / Math.max(1, count), size = 10 ** Math.floor(Math.log10(least));
  if (axis === 'time' && least <= 86400) return niceTimes.find(step => step >= least);
  const step = [1, 2, 5, 10].map(m => m * size).find(s => s >= least * 0.999);
  return axis === 'step' ? Math.max(1, step) : step;
}

function tickText(value, step, axis) {
  if (axis === 'time') {
    const s = Math.abs(value), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    if (step < 60) return s < 60 ? String(Number(s.toFixed(3))) + ' s' : Math.floor(s / 60) + ':' + String(Math.round(s % 60)).padStart(2, '0');
    return h ? h + ' h' + (m ? ' ' + m : '') : m + ' min';
  }
  const size = Math.abs(value);
  if (size >= 1e4) return value.toLocaleString('en', {notation: 'compact', maximumFractionDigits: size / step > 1e3 ? 3 : 2});
  if (size !== 0 && step < 1e-4) return value.toExponential(Math.max(0, Math.floor(Math.log10(size)) - Math.floor(Math.log10(step) + 1e-9))).replace('e+', 'e');
  return String(Number(value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)))));
}

function linearTicks(from, to, count, axis) {
  const step = niceStep(to - from, count, axis), ticks = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9 && ticks.length < 50; k++)
    ticks.push({v: k * step, label: tickText(k * step, step, axis)});
  return ticks;
}

function logTicks(from, to, count) {
  const low = Math.floor(Math.log10(from)), high = Math.ceil(Math.log10(to)), ticks = [];
  if (!(from > 0) || to / from < 8) return linearTicks(from, to, count);
  const each = Math.max(1, Math.ceil((high - low) / count));
  for (let e = low; e <= high; e += each)
    for (const m of high - low <= 2 ? [1, 2, 5] : [1]) {
      const v = m * 10 ** e;
      if (v >= from && v <= to) ticks.push({v, label: short(v, 3)});
    }
  return ticks;
}

// The place of a point, in words.
function placeText(x) {
  if (view.axis === 'step') return 'step ' + Math.round(x).toLocaleString('en');
  if (view.axis === 'time') return duration(x);
  return x > 0 && Number.isInteger(x) ? 'end of epoch ' + x : 'epoch ' + (Math.floor(x) + 1) + ', ' + Math.floor(100 * (x % 1)) + ' %';
}

function chartMake(key, metric) {
  const figure = element('figure'), caption = element('figcaption'), plot = element('div', '', 'plot');
  const log = element('button', 'log', 'small'), csv = element('button', 'CSV', 'small');
  const name = element('span', metric.title, 'name');
  const chart = {key, metric, figure, plot, log, legend: element('ul', '', 'series'), place: element('p', '', 'quiet place'), graph: null, shown: ''};
  figure.dataset.metric = key;
  name.title = metric.title;
  log.type = csv.type = 'button';
  log.id = 'log-' + key;
  csv.id = 'csv-' + key;
  log.setAttribute('aria-label', 'log scale of ' + metric.title);
  log.setAttribute('aria-pressed', 'false');
  csv.setAttribute('aria-label', 'points of ' + metric.title + ' as CSV');
  log.addEventListener('click', () => {
    if (!view.logs.delete(key)) view.logs.add(key);
    showCharts(current());
  });
  csv.addEventListener('click', () => download(chart));
  plot.setAttribute('role', 'img');
  caption.append(name, element('span', [metric.unit, metric.when].filter(Boolean).join(', '), 'unit quiet'), log, csv);
  figure.append(caption, plot, chart.legend, chart.place);
  return chart;
}

// The mouse, or a finger, in a chart changes the range that all charts show.
function chartMoved(graph, chart) {
  const [from, to] = graph.xAxisRange();
  if (from === chart.range[0] && to === chart.range[1]) return;          // only its size has changed
  view.window = chart.range = [from, to];
  clearTimeout(chartMoved.timer);
  chartMoved.timer = setTimeout(() => showCharts(current()), 30);
}

let drawing = false;        // by this page, not by a drag

function graphMake(chart, options) {
  const model = Object.assign({}, Dygraph.defaultInteractionModel, {dblclick: () => zoomReset()});
  chart.graph = new Dygraph(chart.plot, options.file, Object.assign({}, options, {file: undefined, legend: 'never', interactionModel: model,
    connectSeparatedPoints: true, highlightCircleSize: 4, rightGap: 8, xRangePad: 0, yRangePad: 6, animatedZooms: false, xAxisHeight: 24,
    drawCallback: (graph, isFirst) => { if (!isFirst && !drawing) chartMoved(graph, chart); },
    highlightCallback: (event, x, points, row) => legendSay(chart, x, row),
    unhighlightCallback: () => legendSay(chart, null)}));
}

// The names of the series with their newest values, or their values at x.
function legendSay(chart, x, row) {
  const items = chart.legend.children;
  chart.series.forEach((series, k) => {
    if (!items[k]) return;
    let value = series.y[series.y.length - 1] * series.metric.scale;
    if (x !== null) {
      const file = chart.file, column = chart.columns[k];
      let near = -1;
      for (let d = 0; near < 0 && d < 400; d++)
        if (file[row - d] && file[row - d][column] !== null) near = row - d;
        else if (file[row + d] && file[row + d][column] !== null) near = row + d;
      value = near < 0 ? null : file[near][column];
    }
    say(items[k].lastChild, short(value, 5));
  });
  say(chart.place, x === null ? '' : placeText(x));
}

function legendMake(chart, clip) {
  chart.legend.replaceChildren(...chart.series.map(series => {
    const item = element('li'), key = element('span', '', 'line');
    key.style.borderTopColor = css('--s' + series.colour);
    if (series.dashes) key.style.borderTopStyle = 'dashed';
    item.append(key, element('span', series.label + ' '), element('b', ''));
    return item;
  }));
  if (!clip) return;
  const item = element('li'), key = element('span', '', 'line');
  key.style.borderTopColor = css('--bad');
  key.style.borderTopStyle = 'dashed';
  item.append(key, element('span', 'clipped at '), element('b', short(clip)));
  chart.legend.append(item);
}

function chartShow(chart, series, range, all) {
  const {key, metric} = chart, isLog = view.logs.has(key), run = series[0].run;
  const clip = key === 'grad_norm' && run.clip > 0 ? run.clip : 0;
  const shown = JSON.stringify([view.axis, view.smooth, range, isLog, chart.plot.clientWidth, css('--line'), clip,
    series.map(s => [s.run.number, s.label, s.y.length, s.run.curves.step.length])]);
  chart.log.setAttribute('aria-pressed', String(isLog));
  if (shown === chart.shown || !chart.plot.clientWidth) return;
  chart.shown = shown;
  const raws = view.smooth > 1 ? series.filter(s => s.y.length > FEW) : [], width = 1 + raws.length + series.length + (clip ? 1 : 0);
  const rows = new Map(), most = Math.max(100, Math.min(1200, Math.floor(chart.plot.clientWidth * 3 / (2 + series.length))));
  const options = {}, colours = [], lines = [...raws.map(s => [s, true]), ...series.map(s => [s, false])];
  lines.forEach(([s, isRaw], k) => {
    const few = s.y.length <= FEW, colour = css('--s' + s.colour);
    rowsTake(rows, width, k + 1, axisOf(s), s.at, isRaw ? s.y : valuesOf(s), metric.scale, range, most);
    colours.push(isRaw ? fade(colour) : colour);
    options['y' + k] = {strokeWidth: isRaw ? 1 : 1.7, strokePattern: s.dashes, drawPoints: few && !isRaw, pointSize: s.y.length < 3 ? 4 : 2.5,
      highlightCircleSize: isRaw ? 0 : 4};
  });
  if (clip) {
    for (const x of range) {
      if (!rows.has(x)) rows.set(x, new Array(width).fill(null));
      rows.get(x)[width - 1] = clip;
    }
    colours.push(css('--bad'));
    options['y' + (width - 2)] = {strokePattern: [5, 4], strokeWidth: 1.5, highlightCircleSize: 0};
  }
  chart.file = [...rows].sort(([a], [b]) => a - b).map(([x, row]) => { row[0] = x; return row; });
  chart.series = series;
  chart.range = [...range];
  chart.columns = series.map((s, k) => raws.length + k + 1);
  const axis = {axisLineColor: css('--line'), gridLineColor: css('--line'), axisLabelFontSize: 12, axisLabelWidth: 58};
  const set = {file: chart.file, labels: ['x', ...colours.map((_, k) => 'y' + k)], colors: colours, series: options, dateWindow: [...range],
    logscale: isLog, axes: {
      x: Object.assign({}, axis, {ticker: (a, b, pixels) => linearTicks(a, b, Math.max(2, Math.floor(pixels / 55)), view.axis)}),
      y: Object.assign({}, axis, {ticker: (a, b, pixels) => (isLog ? logTicks : linearTicks)(a, b, Math.max(2, Math.floor(pixels / 30)))})}};
  drawing = true;
  if (chart.graph) {
    chart.graph.resize();
    chart.graph.updateOptions(set);
  } else {
    graphMake(chart, set);
  }
  drawing = false;
  const legend = JSON.stringify([series.map(s => [s.label, s.colour, s.dashes]), clip, css('--line')]);
  if (chart.legend.dataset.key !== legend) legendMake(chart, clip);
  chart.legend.dataset.key = legend;
  legendSay(chart, null);
  chart.plot.setAttribute('aria-label', metric.title + (metric.unit ? ', ' + metric.unit : '') + ': newest '
    + series.map(s => s.label + ' ' + short(s.y[s.y.length - 1] * metric.scale)).join(', '));
}

function shownRuns(run) {
  if (!run) return [];
  return view.compares ? allRuns().reverse().filter(r => r.curves.step.length) : [run];
}

function showCharts(run) {
  if (!window.Dygraph) return;
  const runs = shownRuns(run), all = chartSeries(runs, labels(allRuns())), whole = extent(all);
  if (view.window && !(view.window[1] > view.window[0])) view.window = null;
  const box = $('charts');
  for (const [key, chart] of charts)
    if (!all.has(key)) {
      if (chart.graph) chart.graph.destroy();
      chart.figure.remove();
      charts.delete(key);
    }
  let before = null;
  for (const [key, {metric}] of all) {
    if (!charts.has(key)) charts.set(key, chartMake(key, metric));
    const {figure} = charts.get(key);
    const place = before ? before.nextElementSibling : box.firstElementChild;
    if (place !== figure) box.insertBefore(figure, place);
    before = figure;
  }
  for (const [key, {series}] of all) chartShow(charts.get(key), series, view.window || whole, all);
  const most = Math.max(0, ...runs.map(r => r.reports_per_point));
  $('charts-none').hidden = all.size > 0;
  $('compares-box').hidden = seen.runs.size < 2;
  $('zoom-reset').ariaDisabled = String(!view.window && ![...charts.values()].some(c => c.graph && c.graph.isZoomed('y')));
  $('axis').querySelector('[value=epoch]').disabled = !runs.some(r => r.batches || r.curves.epoch[r.curves.epoch.length - 1] > 0);
  say($('charts-text'), most > 1 ? 'Each point is the newest of ' + most + ' reports.' : '');
}

// ---- the visible range of the charts ----

function zoomReset() {
  view.window = null;
  drawing = true;
  for (const chart of charts.values()) {
    chart.shown = '';
    if (chart.graph) chart.graph.updateOptions({valueRange: null}, true);
  }
  drawing = false;
  showCharts(current());
}

// share: the part of the range that stays visible; by: how far it moves, in ranges.
function zoomBy(share, by) {
  const runs = shownRuns(current());
  if (!runs.length) return;
  const whole = extent(chartSeries(runs, labels(allRuns()))), [from, to] = view.window || whole;
  const half = Math.min((to - from) * share, whole[1] - whole[0]) / 2;
  const middle = Math.min(whole[1] - half, Math.max(whole[0] + half, (from + to) / 2 + by * (to - from)));
  view.window = half * 2 >= whole[1] - whole[0] ? null : [middle - half, middle + half];
  showCharts(current());
}

function toolsBegin() {
  const tools = {'zoom-in': [0.5, 0], 'zoom-out': [2, 0], 'zoom-left': [1, -0.25], 'zoom-right': [1, 0.25]};
  for (const [id, [share, by]] of Object.entries(tools)) $(id).addEventListener('click', () => zoomBy(share, by));
  $('zoom-reset').addEventListener('click', zoomReset);
  $('axis').addEventListener('change', () => { view.axis = $('axis').value; view.window = null; showCharts(current()); });
  $('smooth').max = windows.length - 1;
  $('smooth').addEventListener('input', () => {
    view.smooth = windows[$('smooth').value];
    const text = view.smooth > 1 ? 'mean of ' + view.smooth + ' points' : 'off';
    say($('smooth-text'), text);
    $('smooth').setAttribute('aria-valuetext', text);
    showCharts(current());
  });
  $('compares').addEventListener('change', () => { view.compares = $('compares').checked; view.window = null; showCharts(current()); });
}

// ---- points as a file ----

function cell(value) {
  const text = String(value);
  return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
}

// All points of a chart as reported, without smoothing: a line for each point of each run.
function csvOf(chart) {
  const names = [...new Set(chart.series.map(s => s.metric.name))], lines = [['run', 'step', 'epochs_done', 'seconds', ...names].map(cell).join()];
  for (const run of new Set(chart.series.map(s => s.run))) {
    const {step, epoch, time} = run.curves, rows = new Map();
    for (const s of chart.series.filter(one => one.run === run)) {
      const k = names.indexOf(s.metric.name);
      s.at.forEach((at, p) => {
        if (!rows.has(step[at])) rows.set(step[at], {at, values: new Array(names.length).fill('')});
        rows.get(step[at]).values[k] = s.y[p];
      });
    }
    for (const {at, values} of [...rows.values()].sort((a, b) => a.at - b.at))
      lines.push([run.name || run.number, step[at], epoch[at], Number(time[at].toFixed(3)), ...values].map(cell).join());
  }
  return lines.join('\n') + '\n';
}

function download(chart) {
  const link = element('a'), address = URL.createObjectURL(new Blob([csvOf(chart)], {type: 'text/csv'})), run = current();
  link.href = address;
  link.download = [view.compares ? 'runs' : 'run-' + (run.name || run.number), chart.key].join('-').replace(/[^\w.-]+/g, '_') + '.csv';
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// ---- ranks ----

function canvasReady(canvas) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return [context, width, height];
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function showStrip(run) {
  if (!$('engine').open) return;
  const canvas = $('strip'), slots = run ? run.strip : [];
  const ranks = slots.length ? slots[slots.length - 1][1].length : 0;
  $('ranks-box').hidden = !ranks;
  $('strip-box').hidden = ranks < 2;
  const [context, width, height] = canvasReady(canvas);
  const left = 34, cell = (width - left) / SLOTS_MAX, line = Math.min(64, height / Math.max(1, ranks));
  let text = ranks ? 'Time of a step of the only rank, by stage.' : 'No data yet.';
  context.fillStyle = css('--even');
  slots.forEach(([, own], k) => {
    const middle = median(own);
    own.forEach((seconds, rank) => {
      const off = middle > 0 ? seconds / middle - 1 : 0, x = left + (SLOTS_MAX - slots.length + k) * cell;
      context.globalAlpha = 1;
      context.fillStyle = css('--even');
      context.fillRect(x, rank * line, cell + 0.5, line - 1);
      context.globalAlpha = Math.min(1, Math.abs(off) * 2);
      context.fillStyle = css(off > 0 ? '--slow' : '--quick');
      context.fillRect(x, rank * line, cell + 0.5, line - 1);
    });
  });
  context.globalAlpha = 1;
  context.fillStyle = css('--quiet');
  context.font = '12px system-ui, sans-serif';
  context.textBaseline = 'middle';
  for (let rank = 0; rank < ranks; rank += Math.ceil(14 / line))
    context.fillText(String(rank), 6, rank * line + line / 2);
  if (ranks && run.stalled) text = 'No progress since the newest of these.';
  else if (ranks > 1) {
    const own = slots[slots.length - 1][1], slowest = own.indexOf(Math.max(...own));
    const middle = median(own.filter((_, rank) => rank !== slowest));
    text = 'Rank ' + slowest + ' is slowest now: ' + duration(own[slowest]) + ' a step without waits, '
      + short(100 * (own[slowest] / middle - 1), 2) + ' % above the ' + (ranks > 2 ? 'median of the others, ' : "other's ") + duration(middle) + '.';
  }
  say($('ranks-text'), text);
  canvas.setAttribute('aria-label', text);
}

// The stages of a rank's step, in the order of the server; in the collective a rank waits for others.
const stages = ['data', 'forward', 'backward', 'collective', 'optimizer', 'absent'];

// A cell with the name of its column, for narrow screens without the head of the table.
function named(name, className) {
  const td = element('td', '', className);
  td.dataset.name = name;
  return td;
}

function stageRow(rank) {
  const tr = element('tr'), bar = element('td', '', 'bar'), canvas = element('canvas'), name = element('th', String(rank));
  name.scope = 'row';
  canvas.setAttribute('aria-hidden', 'true');
  bar.append(canvas);
  tr.append(name, bar, named('without waits', 'n'), ...stages.map((stage, k) => named(stage, 'n some s' + k)));
  return tr;
}

function stagesHead() {
  const tr = $('stages').tHead.rows[0];
  stages.forEach((stage, k) => {
    const th = element('th', '', 'n'), key = element('span', '', 'key s' + k);
    th.scope = 'col';
    th.append(key, stage);
    tr.append(th);
  });
}

// The devices of the ranks.
function showDevices(run) {
  const gib = bytes => short(bytes / 2 ** 30, 3), devices = run ? run.devices : [];
  const line = d => 'Device of rank ' + d.rank + ': ' + [
    d.utilization !== null && short(100 * d.utilization, 3) + ' % in use',
    d.memory_used !== null && gib(d.memory_used) + ' of ' + gib(d.memory_total) + ' GiB',
    d.power !== null && short(d.power, 3) + ' W',
    d.temperature !== null && short(d.temperature, 3) + ' °C'].filter(part => part).join(', ') + '.';
  $('devices').hidden = !devices.length;
  say($('devices'), devices.map(line).join('\n'));
}

function showStages(run) {
  if (!$('engine').open) return;
  const all = run ? run.stages : [], body = $('stages').tBodies[0];
  if (body.rows.length !== all.length) body.replaceChildren(...all.map((_, rank) => stageRow(rank)));
  const most = Math.max(...all.map(row => row.reduce((a, b) => a + b, 0)));
  all.forEach((row, rank) => {
    const cells = body.rows[rank].cells, [context, width, height] = canvasReady(cells[1].firstChild);
    let x = 0;
    row.forEach((seconds, k) => {
      context.fillStyle = css('--s' + k);
      context.fillRect(x, 1, seconds / most * width, height - 2);
      x += seconds / most * width;
      say(cells[3 + k], duration(seconds));
    });
    say(cells[2], duration(row.reduce((a, b) => a + b, 0) - row[stages.indexOf('collective')]));
  });
}

// ---- actors ----

function actorRow(actor) {
  const tr = element('tr'), strip = element('td'), canvas = element('canvas');
  canvas.setAttribute('aria-hidden', 'true');
  strip.append(canvas);
  const name = element('th');
  name.scope = 'row';
  for (const part of actor.name.split(/(?<=\.)/)) name.append(part, element('wbr'));       // breaks behind a dot
  tr.append(name, strip, element('td', '', 'n'), element('td', '', 'n'));
  return tr;
}

function showLanes() {
  if (!$('engine').open) return;
  const actors = [...seen.last.actors].sort((a, b) => b.level - a.level || (a.name < b.name ? -1 : 1));
  const body = $('actors').tBodies[0], key = actors.map(actor => actor.name).join();
  if (body.dataset.key !== key) body.replaceChildren(...actors.map(actorRow));
  body.dataset.key = key;
  const most = Math.log1p(Math.max(1, ...actors.flatMap(actor => actor.slots)));
  const all = actors.map((actor, k) => [actor, body.rows[k], canvasReady(body.rows[k].cells[1].firstChild)]);
  for (const [actor, tr, [context, width, height]] of all) {
    const cell = width / actor.slots.length;
    context.fillStyle = css('--accent');
    actor.slots.forEach((count, k) => {
      context.globalAlpha = count ? 0.15 + 0.85 * Math.log1p(count) / most : 0;
      context.fillRect(k * cell, 1, cell - 0.5, height - 2);
    });
    say(tr.cells[2], short(actor.slots.slice(0, -1).reduce((a, b) => a + b, 0) / (0.25 * (actor.slots.length - 1)), 3));
    say(tr.cells[3], String(Math.max(0, actor.open)));
  }
  say($('messages-text'), short(seen.last.messages) + ' messages'
    + (seen.last.missing ? '; ' + short(seen.last.missing) + ' more were dropped because too many came' : '') + '.');
}

function showNewest() {
  if (!$('newest-box').open) return;
  const all = [...seen.last.newest].sort((a, b) => b[0] - a[0]);
  $('newest').tBodies[0].replaceChildren(...all.map(([time, rank, from, to, kind, name]) => row([
    [short((all[0][0] - time) * 1e6), 'n'], [rank < 0 ? '' : String(rank), 'n'], [from], [to], [name + ' ' + kind, 'text']])));
}

// ---- lists ----

function showSaves(run) {
  const body = $('saves').tBodies[0], saves = run ? [...run.saves].reverse().sort((a, b) => a.removed - b.removed) : [];
  const key = run ? run.number + ':' + saves.map(save => save.number + (save.removed ? '-' : '')).join() : '';
  if (body.dataset.key === key) return;
  body.dataset.key = key;
  body.replaceChildren(...(saves.length ? saves.map(save => row([[clock(save.time)],
    [save.failed ? 'failed: ' + save.text : save.text.split('/').pop() + (save.removed ? ' (removed)' : ''),
      save.failed ? 'text level-error' : save.removed ? 'text quiet' : 'text']]))
    : [row([['None yet.', 'quiet']])]));
}

function showMetrics(run) {
  const columns = run ? run.columns.filter(c => c.newest !== null) : [];
  const all = columns.map(c => [c, metricOf(c.name)]).sort(([, a], [, b]) => inOrder(a, b));
  const body = $('metrics').tBodies[0], key = all.map(([c]) => c.name).join();
  if (body.dataset.key !== key)
    body.replaceChildren(...all.map(([c, m]) => row([[m.title + (m.label ? ', ' + m.label : ''), 'text'], ['', 'n'], [m.unit, 'quiet'],
      [c.name, 'quiet raw']])));
  body.dataset.key = key;
  all.forEach(([c, m], k) => say(body.rows[k].cells[1], short(c.newest * m.scale, 6)));
}

function showLog() {
  const body = $('log').tBodies[0], box = $('log-box'), last = seen.log[seen.log.length - 1];
  const key = last ? seen.log.length + ':' + last[0] + last[4] : 'none';
  if (body.dataset.key === key) return;
  const follows = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
  body.dataset.key = key;
  body.replaceChildren(...(seen.log.length ? seen.log.map(([time, level, rank, actor, text]) => row([[clock(time), 'quiet'],
    [level, 'level-' + level], [(rank < 0 ? '' : 'rank ' + rank + ' ') + actor, 'quiet'], [text, 'text']]))
    : [row([['Nothing yet.', 'quiet']])]));
  if (follows) box.scrollTop = box.scrollHeight;
}

// Where drawing is slow, as on a machine whose processors are busy, events that came together are shown together.
function showSoon() {
  if (showSoon.timer) return;
  showSoon.timer = setTimeout(() => {
    const began = performance.now();
    showSoon.timer = 0;
    show();
    showSoon.next = performance.now() + 2 * (performance.now() - began);
  }, Math.max(0, (showSoon.next || 0) - performance.now()));
}

function show() {
  if (!seen.last) return;
  const run = current();
  showRuns(run);
  showSummary(run);
  showButtons(run);
  showCharts(run);
  showDrawings(run);
  showStrip(run);
  showStages(run);
  showDevices(run);
  showLanes();
  showNewest();
  showSaves(run);
  showMetrics(run);
  showLog();
}

// ---- the connection ----

function linkSay(state, text) {
  $('link').dataset.state = state;
  say($('link'), text);
  showButtons(current());
}

function notice(text) {
  $('notice').hidden = !text;
  say($('notice'), text);
}

function connect() {
  const source = new EventSource('events');
  source.addEventListener('message', event => {
    take(JSON.parse(event.data));
    linkSay('live', 'live');
    if (refused) notice('');
    refused = '';
  });
  source.addEventListener('error', () => {
    const since = seen.last ? ', state of ' + clock(seen.last.now) : '';
    linkSay(source.readyState === EventSource.CLOSED ? 'lost' : 'wait', 'not connected' + since);
    // The browser reconnects after a lost connection, but not after a refusal.
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(connect, 3000);
    refusal().then(text => { refused = text; if (text) notice(text); });
  });
}

// Why the server refuses events, which an EventSource does not report; '': it does not.
async function refusal() {
  const enough = new AbortController();
  try {
    const answer = await fetch('events', {signal: enough.signal});
    return answer.ok ? '' : await answer.text();
  } catch {
    return '';
  } finally {
    enough.abort();
  }
}

function begin() {
  if (window.Dygraph) {
    Dygraph.PLUGINS = Dygraph.PLUGINS.filter(plugin => plugin !== Dygraph.Plugins.Legend);      // it writes styles into HTML
  } else {
    notice('The charts need dygraphs, which is not installed on the machine of the run: apt-get install libjs-dygraphs. '
      + 'Everything else on this page works without it.');
    $('charts-tools').hidden = true;
  }
  toolsBegin();
  stagesHead();
  $('buttons').append(...buttons.map(buttonMake));
  showButtons(null);
  $('newest-box').addEventListener('toggle', show);
  $('engine').addEventListener('toggle', show);
  window.addEventListener('resize', show);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
  connect();
}

begin();
