// drawings.js - metrics that are no points: confusion matrices as tables, curves as drawings
//
// Each shows the newest value.  page.js, which has the runs, calls showDrawings().
'use strict';

const CELLS_MOST = 26;          // classes of a matrix whose counts are written; of a larger one, its shades alone
const svgOf = (tag, attributes, text) => {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
};

function className(run, k, count) {
  const names = run.class_names;
  return names && names.length === count ? names[k] : String(k);
}

// The matrices of a value: one of all classes, or one of each label.
function matricesOf(value) {
  if (!Array.isArray(value) || !value.length) return null;
  return Array.isArray(value[0][0]) ? value : Array.isArray(value[0]) ? [value] : null;
}

// The share of the samples of the true class, from 0 to 1, of each cell.
function sharesOf(rows) {
  return rows.map(row => {
    const all = row.reduce((a, b) => a + b, 0);
    return row.map(count => (all ? count / all : 0));
  });
}

function matrixTable(run, rows) {
  const count = rows.length, shares = sharesOf(rows), table = element('table', undefined, 'matrix');
  const head = table.createTHead().insertRow(), body = table.createTBody();
  head.append(element('td'));
  for (let k = 0; k < count; k++) {
    const th = element('th', className(run, k, count));
    th.scope = 'col';
    th.title = th.textContent;
    head.append(th);
  }
  rows.forEach((row, k) => {
    const tr = body.insertRow(), th = element('th', className(run, k, count));
    th.scope = 'row';
    th.title = th.textContent;
    tr.append(th);
    row.forEach((cell, j) => {
      const td = element('td', cell.toLocaleString('en'), j === k ? 'right' : 'wrong'), share = shares[k][j];
      td.style.setProperty('--share', Math.round(share * 100) + '%');
      td.title = className(run, k, count) + ' predicted as ' + className(run, j, count) + ': ' + cell.toLocaleString('en') + ', '
        + short(100 * share, 3) + ' % of the class';
      tr.append(td);
    });
  });
  return table;
}

// Many classes: a shade for each cell, on a canvas that is as wide as its figure.
function matrixPicture(rows) {
  const canvas = element('canvas', undefined, 'matrix'), count = rows.length;
  canvas.width = canvas.height = count;
  const context = canvas.getContext('2d');
  sharesOf(rows).forEach((row, k) => row.forEach((share, j) => {
    context.globalAlpha = share;
    context.fillStyle = css(j === k ? '--accent' : '--bad');
    context.fillRect(j, k, 1, 1);
  }));
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', 'matrix of ' + count + ' classes');
  return canvas;
}

function matrixParts(run, matrices) {
  return matrices.flatMap((rows, k) => {
    const all = rows.flat().reduce((a, b) => a + b, 0), right = rows.reduce((sum, row, j) => sum + row[j], 0);
    const box = element('div', undefined, 'scroll');
    box.tabIndex = 0;
    box.setAttribute('role', 'group');
    box.setAttribute('aria-label', 'true class by row, predicted class by column');
    box.append(rows.length > CELLS_MOST ? matrixPicture(rows) : matrixTable(matrices.length > 1 ? {} : run, rows));
    return [box, element('p', (matrices.length > 1 ? 'Label ' + className(run, k, matrices.length) + '. ' : '')
      + 'Rows: true class; columns: prediction. ' + right.toLocaleString('en') + ' of ' + all.toLocaleString('en') + ' on the diagonal.', 'quiet')];
  });
}

// ---- curves ----

const SIDE = 300, EDGE = {left: 40, right: 8, top: 8, bottom: 36};

function curveDrawing(run, value) {
  const width = SIDE + EDGE.left + EDGE.right, height = SIDE + EDGE.top + EDGE.bottom;
  const x = share => EDGE.left + share * SIDE, y = share => EDGE.top + (1 - share) * SIDE;
  const drawing = svgOf('svg', {viewBox: '0 0 ' + width + ' ' + height, class: 'curve', role: 'img', 'aria-label': value.y + ' by ' + value.x});
  for (let k = 0; k <= 4; k++) {
    const at = k / 4;
    drawing.append(svgOf('line', {x1: x(at), x2: x(at), y1: y(0), y2: y(1), class: 'grid'}), svgOf('line', {x1: x(0), x2: x(1), y1: y(at), y2: y(at),
      class: 'grid'}), svgOf('text', {x: x(at), y: y(0) + 15, 'text-anchor': 'middle'}, at), svgOf('text', {x: x(0) - 6, y: y(at) + 4,
      'text-anchor': 'end'}, at));
  }
  drawing.append(svgOf('text', {x: x(0.5), y: height - 4, 'text-anchor': 'middle'}, value.x),
    svgOf('text', {x: 10, y: y(0.5), 'text-anchor': 'middle', transform: 'rotate(-90 10 ' + y(0.5) + ')'}, value.y));
  if (value.curve === 'roc') drawing.append(svgOf('line', {x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: 'chance'}));
  value.points.forEach((points, k) => {
    const line = svgOf('polyline', {points: points.map(([a, b]) => x(a).toFixed(1) + ',' + y(b).toFixed(1)).join(' ')});
    line.style.stroke = 'var(--s' + k % COLOURS + ')';
    if (k >= COLOURS) line.setAttribute('stroke-dasharray', '4 3');
    drawing.append(line);
  });
  return drawing;
}

function curveParts(run, value) {
  const names = element('ul', undefined, 'series'), count = value.points.length;
  if (count > 1)
    names.append(...value.points.map((_, k) => {
      const item = element('li'), key = element('span', '', 'line');
      key.style.borderTopColor = 'var(--s' + k % COLOURS + ')';
      if (k >= COLOURS) key.style.borderTopStyle = 'dashed';
      item.append(key, element('span', className(run, k, count)));
      return item;
    }));
  return [curveDrawing(run, value), names];
}

// ---- all of a run ----

function drawingMake(run, name, value) {
  const metric = metricOf(name), figure = element('figure'), caption = element('figcaption'), matrices = matricesOf(value);
  figure.dataset.metric = name;
  caption.append(element('span', metric.title, 'name'), element('span', metric.label, 'unit quiet'));
  figure.append(caption, ...(matrices ? matrixParts(run, matrices) : curveParts(run, value)));
  return figure;
}

function showDrawings(run) {
  const box = $('drawings'), drawings = run ? [...run.drawings.entries()].filter(([, value]) => matricesOf(value) || (value && value.points)) : [];
  const key = run ? run.number + ':' + run.drawn : '';
  $('drawings-box').hidden = !drawings.length;
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  box.replaceChildren(...drawings.sort(([a], [b]) => inOrder(metricOf(a), metricOf(b))).map(([name, value]) => drawingMake(run, name, value)));
}
