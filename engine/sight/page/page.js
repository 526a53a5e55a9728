// page.js - the dashboard: takes what the server sends and shows it
//
// The server sends what is new since the last event, and all there is to who has nothing
// yet.  The browser reconnects by itself and says which event it had last, so a page that
// was away goes on where it was.  Nothing from the stream is ever used as HTML.
'use strict';

const $ = id => document.getElementById(id);
const POINTS_MOST = 1000, SLOTS_MOST = 120, LOG_MOST = 200;
const seen = {runs: new Map(), log: [], last: null};
let chosen = null;          // number of the run that is shown; null: the newest
let charts = null;          // by canvas; null: there is no Chart.js
const logScales = new Set();        // charts whose values stand on a scale of powers
let refused = '';           // why the server sends nothing

// ---- words ----

function short(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace('e+', 'e');
  if (size >= 1000) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(digits)));
}

// For the ends of an axis.
function brief(value) {
  return Math.abs(value) >= 1e4 ? value.toLocaleString('en', {notation: 'compact'}) : short(value, 3);
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
  test: ['testing', 'on'], predict: ['predicting', 'on'], paused: ['paused', 'warn'], rollback: ['going back', 'warn'],
  ok: ['done', 'ok'], stopped: ['stopped', 'warn'], failed: ['failed', 'failed']};

function doing(run) {
  return doings[run.doing] || [run.doing, 'on'];
}

// ---- making what is shown ----

function element(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// Changes a text only when it differs, so that what is selected or read aloud stays.
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

// ---- what comes ----

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
  keep(seen.log, state.log, LOG_MOST);
  for (const run of state.runs) {
    const old = seen.runs.get(run.number) || {points: [], strip: [], saves: []};
    const points = run.whole ? [] : old.points, strip = old.strip;
    const saves = run.saves.length ? run.saves : old.saves;     // all, once one has changed
    keep(points, run.points, POINTS_MOST);
    keep(strip, run.strip, SLOTS_MOST);
    seen.runs.set(run.number, Object.assign(run, {points, strip, saves}));
  }
  for (const number of seen.runs.keys())
    if (!state.runs.some(run => run.number === number)) seen.runs.delete(number);
  show();
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

function showRuns(run) {
  const nav = $('runs'), all = [...seen.runs.values()].sort((a, b) => b.number - a.number);
  const wanted = all.length > 1 ? all : [];
  const key = wanted.map(r => r.number + r.name + r.doing).join() + (run && run.number);
  if (nav.dataset.key === key) return;
  const focused = document.activeElement && document.activeElement.dataset.run;
  nav.dataset.key = key;
  nav.replaceChildren(...wanted.map(r => {
    const button = element('button', title(r) + ' · ' + doing(r)[0]);
    button.type = 'button';
    button.dataset.run = r.number;
    if (r === run) button.setAttribute('aria-current', 'true');
    button.addEventListener('click', () => { chosen = r.number; show(); });
    return button;
  }));
  if (focused) for (const button of nav.children) if (button.dataset.run === focused) button.focus();
}

function counted(count, what) {
  return count.toLocaleString('en') + ' ' + what + (count === 1 ? '' : 's');
}

// How a run ended, what it has done, and what there is of it; '': it goes on, or its error says so.
function ending(run) {
  if (!run.ended || run.epochs === null) return '';
  const word = {ok: 'Done', stopped: 'Stopped', failed: 'Failed'}[run.doing];
  const saved = run.saves.filter(save => !save.failed && !save.removed).pop();
  return word + ' after ' + counted(run.epochs, 'epoch') + ', ' + counted(run.step, 'step') + (run.reason ? ': ' + run.reason : '') + '. '
    + (saved ? 'Saved as ' + saved.text.split('/').pop() + '.' : 'No checkpoint was saved.');
}

// Of a run that has ended how many are done; of one that goes on the one under way, and how far that is.
function epochs(run) {
  if (run.ended && run.epochs !== null) return run.epochs + ' done';
  return String(run.epoch + 1) + (run.batches ? ' · ' + Math.floor(100 * run.batch / run.batches) + ' %' : '');
}

// What holds a run up: '' nothing.
function amiss(run) {
  if (run.ended) return '';
  const said = run.stalled ? ['Nothing has been done for ' + duration(run.stalled) + '.'] : [];
  return said.concat(run.absent.map(a => 'Rank ' + a.rank + ': ' + a.event + ', heard of ' + duration(a.seconds) + ' ago; ' + a.text + '.')).join(' ');
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
    ['Step p50, now', run.doing === 'paused' || run.stalled ? '–' : duration(newest(run, 'step_seconds_p50'))],
    ['Step p95, now', run.doing === 'paused' ? '–' : duration(newest(run, 'step_seconds_p95'))],
    ['Step p50, run', duration(run.run_p50)],
    ['Step p95, run', duration(run.run_p95)],
    ['Time', duration(run.seconds)],
    ['Left', run.ended || run.stalled || !share || run.step < 2 ? '–' : duration(run.seconds * (1 - share) / share)]];
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

// The engine has numbers of its own for what goes on: of several runs it is the one in the same folder.
async function command(word, run) {
  const {runs} = await send({command: 'list'});
  const meant = runs.length === 1 ? runs[0] : runs.find(r => r.run_dir && r.run_dir === run.dir);
  if (!meant) throw new Error(title(run) + ' does not go on.');
  return send(word === 'stop' ? {command: word, run: meant.run, reason: 'the dashboard'} : {command: word, run: meant.run});
}

const buttons = [
  {word: 'pause', text: 'Pause', shown: run => run.doing !== 'paused'},
  {word: 'go_on', text: 'Go on', shown: run => run.doing === 'paused'},
  {word: 'save', text: 'Save', shown: () => true},
  {word: 'stop', text: 'Stop', shown: () => true, danger: true, ask: 'End this run after its next step?'}];

const busy = new Set();     // buttons whose command is under way

function buttonMake(spec) {
  const button = element('button', spec.text, spec.danger ? 'danger' : '');
  button.type = 'button';
  button.id = 'do-' + spec.word;
  // One that is disabled by its property would lose the focus.
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
  // What had the focus is gone: it goes to what has come in its place.
  if (had.hidden && had.parentElement === $('buttons'))
    ($('buttons').querySelector('button:not([hidden])') || $('run-name')).focus();
}

// ---- charts ----

// Which figures of a run a chart shows, and what their numbers are multiplied with.
const plots = {
  loss: {pick: n => /loss/.test(n), label: n => n},
  rate: {pick: n => n === 'samples_per_second', label: () => 'samples/s'},
  time: {pick: n => /^step_seconds_/.test(n), label: n => n.slice(13), scale: 1e3},
  norm: {pick: n => /^grad_norm/.test(n), label: n => n, clip: true},
  lr: {pick: n => /^lr/.test(n), label: n => n},
  other: {pick: n => !/loss|^lr|^grad_norm|_per_second$|^step_seconds_/.test(n), label: n => n},
};

function series(run, plot) {
  const sets = [];
  run.columns.forEach((column, k) => {
    if (!plot.pick(column.name)) return;
    const data = [];
    for (const point of run.points) {
      const y = point[k + 2];
      if (y !== null && y !== undefined) data.push({x: point[1], y: y * (plot.scale || 1)});
    }
    sets.push({label: plot.label(column.name), data, few: /^val_|_epoch$/.test(column.name) || data.length < 3, many: data.length > 40});
  });
  const data = sets.length ? sets[0].data : [];
  if (plot.clip && run.clip > 0 && data.length)
    sets.push({label: 'clip', data: [{x: data[0].x, y: run.clip}, {x: data[data.length - 1].x, y: run.clip}], dash: true});
  return sets;
}

// Room around what does not change.
function axisFit(axis, sets) {
  const all = sets.flatMap(set => set.data.map(point => point.y)), first = all[0];
  const room = all.length && all.every(y => y === first) ? Math.abs(first) / 2 : 0;
  axis.suggestedMin = room ? first - room : undefined;
  axis.suggestedMax = room ? first + room : undefined;
}

function chartMake(id) {
  return new Chart($(id), {type: 'line', data: {datasets: []}, options: {
    animation: false, parsing: false, normalized: true, responsive: true, maintainAspectRatio: false,
    interaction: {mode: 'nearest', axis: 'x', intersect: false},
    elements: {point: {radius: 0, hitRadius: 6}, line: {borderWidth: 1.6}},
    plugins: {legend: {position: 'bottom', align: 'start', labels: {boxWidth: 14, boxHeight: 2, padding: 8}},
      tooltip: {callbacks: {title: items => 'step ' + items[0].parsed.x,
        label: item => ' ' + item.dataset.label + ' ' + short(item.parsed.y, 5)}}},
    scales: {x: {type: 'linear', ticks: {maxTicksLimit: 6, maxRotation: 0, callback: brief}},
      y: {ticks: {maxTicksLimit: 6, callback: brief}, afterFit: axis => { axis.width = 56; }}}}});
}

function chartColours(chart) {
  for (const axis of Object.values(chart.options.scales)) {
    axis.grid = {color: css('--line'), drawBorder: false};
    axis.ticks.color = css('--quiet');
  }
  chart.options.plugins.legend.labels.color = css('--text');
}

function showCharts(run) {
  if (!charts) return;
  for (const [id, chart] of Object.entries(charts)) {
    const sets = run ? series(run, plots[id]) : [];
    chart.data.datasets = sets.map((set, k) => {
      const colour = set.dash ? css('--bad') : css('--s' + k % 6);
      return {label: set.label, data: set.data, borderColor: colour, backgroundColor: colour,
        borderDash: set.dash ? [5, 4] : [], pointRadius: set.few ? (set.many ? 1.5 : 3) : 0, spanGaps: true, tension: 0};
    });
    axisFit(chart.options.scales.y, sets);
    chart.options.scales.y.type = logScales.has(id) ? 'logarithmic' : 'linear';
    chart.update('none');
    const told = sets.filter(s => s.data.length).map(s => s.label + ' ' + short(s.data[s.data.length - 1].y));
    $(id).setAttribute('aria-label', $(id).closest('figure').querySelector('figcaption').firstChild.textContent.trim() + ': '
      + (told.length ? 'newest ' + told.join(', ') : 'nothing yet'));
  }
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
  const canvas = $('strip'), slots = run ? run.strip : [];
  const ranks = slots.length ? slots[slots.length - 1][1].length : 0;
  $('ranks-box').hidden = !ranks;
  $('strip-box').hidden = ranks < 2;
  const [context, width, height] = canvasReady(canvas);
  const left = 34, cell = (width - left) / SLOTS_MOST, line = Math.min(64, height / Math.max(1, ranks));
  let text = ranks ? 'What a step of the only rank takes.' : 'Nothing is known yet.';
  context.fillStyle = css('--even');
  slots.forEach(([, own], k) => {
    const middle = median(own);
    own.forEach((seconds, rank) => {
      const off = middle > 0 ? seconds / middle - 1 : 0, x = left + (SLOTS_MOST - slots.length + k) * cell;
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
  if (ranks && run.stalled) text = 'Nothing has been done since the newest of these.';
  else if (ranks > 1) {
    const own = slots[slots.length - 1][1], slowest = own.indexOf(Math.max(...own));
    const middle = median(own.filter((_, rank) => rank !== slowest));
    text = 'Rank ' + slowest + ' is slowest now: ' + duration(own[slowest]) + ' a step by itself, '
      + short(100 * (own[slowest] / middle - 1), 2) + ' % above the ' + (ranks > 2 ? 'median of the others, ' : "other's ") + duration(middle) + '.';
  }
  say($('ranks-text'), text);
  canvas.setAttribute('aria-label', text);
}

// What a rank's step consists of, in the order in which the server tells it; with the others it is not by itself.
const stages = ['data', 'forward', 'backward', 'collective', 'optimizer', 'absent'];

// A cell with the name of its column, for where the head of the table is not shown.
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
  tr.append(name, bar, named('by itself', 'n'), ...stages.map((stage, k) => named(stage, 'n some s' + k)));
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

function showStages(run) {
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

function laneRow(lane) {
  const tr = element('tr'), strip = element('td'), canvas = element('canvas');
  canvas.setAttribute('aria-hidden', 'true');
  strip.append(canvas);
  const name = element('th');
  name.scope = 'row';
  for (const part of lane.name.split(/(?<=\.)/)) name.append(part, element('wbr'));       // breaks behind a dot
  tr.append(name, strip, element('td', '', 'n'), element('td', '', 'n'));
  return tr;
}

function showLanes() {
  const lanes = [...seen.last.lanes].sort((a, b) => b.level - a.level || (a.name < b.name ? -1 : 1));
  const body = $('lanes').tBodies[0], key = lanes.map(lane => lane.name).join();
  if (body.dataset.key !== key) body.replaceChildren(...lanes.map(laneRow));
  body.dataset.key = key;
  const most = Math.log1p(Math.max(1, ...lanes.flatMap(lane => lane.slots)));
  const all = lanes.map((lane, k) => [lane, body.rows[k], canvasReady(body.rows[k].cells[1].firstChild)]);
  for (const [lane, tr, [context, width, height]] of all) {
    const cell = width / lane.slots.length;
    context.fillStyle = css('--accent');
    lane.slots.forEach((count, k) => {
      context.globalAlpha = count ? 0.15 + 0.85 * Math.log1p(count) / most : 0;
      context.fillRect(k * cell, 1, cell - 0.5, height - 2);
    });
    say(tr.cells[2], short(lane.slots.slice(0, -1).reduce((a, b) => a + b, 0) / (0.25 * (lane.slots.length - 1)), 3));
    say(tr.cells[3], String(Math.max(0, lane.open)));
  }
  say($('messages-text'), short(seen.last.messages) + ' messages'
    + (seen.last.missing ? ', and ' + short(seen.last.missing) + ' that were dropped because too many came' : '') + '.');
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
    [save.failed ? 'failed: ' + save.text : save.text.split('/').pop() + (save.removed ? ' (removed since)' : ''),
      save.failed ? 'text level-error' : save.removed ? 'text quiet' : 'text']]))
    : [row([['None yet.', 'quiet']])]));
}

function showFigures(run) {
  const columns = run ? run.columns.filter(c => c.newest !== null) : [];
  const body = $('figures').tBodies[0], key = columns.map(c => c.name).join();
  if (body.dataset.key !== key)
    body.replaceChildren(...columns.map(c => row([[c.name, 'text'], ['', 'n']])));
  body.dataset.key = key;
  columns.forEach((c, k) => say(body.rows[k].cells[1], short(c.newest, 6)));
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

function show() {
  if (!seen.last) return;
  const run = current();
  showRuns(run);
  showSummary(run);
  showButtons(run);
  showCharts(run);
  showStrip(run);
  showStages(run);
  showLanes();
  showNewest();
  showSaves(run);
  showFigures(run);
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
    const since = seen.last ? ', as of ' + clock(seen.last.now) : '';
    linkSay(source.readyState === EventSource.CLOSED ? 'lost' : 'wait', 'not connected' + since);
    // The browser tries again after a cut, but not after a refusal.
    if (source.readyState !== EventSource.CLOSED) return;
    setTimeout(connect, 3000);
    refusal().then(text => { refused = text; if (text) notice(text); });
  });
}

// Why events are refused, which an EventSource does not tell; '': they are not.
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
  if (window.Chart) {
    charts = Object.fromEntries(Object.keys(plots).map(id => [id, chartMake(id)]));
    Object.values(charts).forEach(chartColours);
  } else {
    notice('The charts need Chart.js, which is not installed where the run is: apt-get install libjs-chart.js. '
      + 'Everything else on this page works without it.');
  }
  for (const id of ['loss', 'time'])
    $('log-' + id).addEventListener('click', event => {
      if (!logScales.delete(id)) logScales.add(id);
      event.currentTarget.setAttribute('aria-pressed', String(logScales.has(id)));
      show();
    });
  stagesHead();
  $('buttons').append(...buttons.map(buttonMake));
  showButtons(null);
  $('newest-box').addEventListener('toggle', show);
  window.addEventListener('resize', show);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    Object.values(charts || {}).forEach(chartColours);
    show();
  });
  connect();
}

begin();
