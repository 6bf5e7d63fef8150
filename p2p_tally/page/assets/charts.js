// Curves over the rounds, drawn by uPlot: accuracy by node with merges marked, and bytes against what others would send.

// Okabe and Ito's colours, which colour-blind readers can tell apart; dashes tell more nodes than colours.
const COLOURS = ['#0072B2', '#D55E00', '#009E73', '#E69F00', '#CC79A7', '#56B4E9', '#8C8C8C'];
const DASHES = [[], [6, 3], [2, 3]];
const MOST_NAMED = 8;

class Chart {
  constructor(box, options) {
    this.box = box;
    this.options = options;
    this.plot = null;
    this.kind = '';
    new ResizeObserver(() => this.resize()).observe(box);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.kind = ''; this.redraw(); });
  }

  // `series`: [{label, stroke, ...}], `data`: [rounds, values of each series]
  show(series, data) {
    this.series = series;
    this.data = data;
    this.redraw();
  }

  redraw() {
    if (!this.data) return;
    const kind = JSON.stringify(this.series.map((one) => one.label));
    if (this.plot && kind === this.kind) {
      this.renew();
      return;
    }
    if (this.plot) this.plot.destroy();
    this.kind = kind;
    const axis = { stroke: colour('--soft'), grid: { stroke: colour('--faint'), width: 1 }, ticks: { stroke: colour('--line'), width: 1 }, font: '12px system-ui' };
    const { y, hooks } = this.options;
    this.plot = new uPlot({
      width: this.box.clientWidth || 400, height: 250,
      scales: { x: { time: false }, y: y.scale },
      axes: [{ ...axis }, { ...axis, size: 64, values: y.values }],
      series: [{ label: 'round' }, ...this.series],
      cursor: { drag: { x: true, y: false } }, hooks: { ...hooks, setCursor: [(plot) => this.showLast(plot)] },
    }, this.data, this.box);
    this.showLast(this.plot);
  }

  // Whoever has zoomed in stays there; a double click shows everything again.
  renew() {
    const { min, max } = this.plot.scales.x;
    const [rounds] = this.plot.data;
    const zoomed = min > rounds[0] || max < rounds.at(-1);
    this.plot.setData(this.data, !zoomed);
    if (zoomed) this.plot.setScale('x', { min, max });
    this.showLast(this.plot);
  }

  // While nobody points at a round, the legend has the last value of each curve.
  showLast(plot) {
    if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idxs: plot.data.map(lastKnown) }, false);
  }

  resize() {
    if (this.plot && this.box.clientWidth) this.plot.setSize({ width: this.box.clientWidth, height: 250 });
  }
}

// The place of the last number in a line.
const lastKnown = (line) => line.findLastIndex((value) => typeof value === 'number');

// Rows of several nodes on one axis of rounds: [rounds, [values of each node]].
function together(curves, column) {
  const rounds = [...new Set(curves.flatMap((rows) => rows.map((row) => row[0])))].sort((one, other) => one - other);
  const place = new Map(rounds.map((round, number) => [round, number]));
  const values = curves.map((rows) => {
    const line = new Array(rounds.length).fill(undefined);
    for (const row of rows) line[place.get(row[0])] = row[column];
    return line;
  });
  return [rounds, values];
}

function meanOf(lines, length) {
  const mean = [];
  for (let place = 0; place < length; place += 1) {
    const known = lines.map((line) => line[place]).filter((value) => typeof value === 'number');
    mean.push(known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : undefined);
  }
  return mean;
}

class AccuracyChart {
  constructor(box, note) {
    this.box = box;
    this.note = note;
    this.merges = [];
    const mark = (plot) => this.markMerges(plot);
    this.chart = new Chart(box, {
      hooks: { drawClear: [mark] },
      y: { scale: {}, values: (_, ticks) => ticks.map((tick) => `${tick} %`) },
    });
  }

  show(store) {
    const names = store.names().filter((name) => store.nodes.get(name).points.rows.length);
    if (!names.length) return;
    this.merges = [...new Set(names.flatMap((name) => store.nodes.get(name).merges.rows.map((row) => row[0])))];
    const [rounds, lines] = together(names.map((name) => store.nodes.get(name).points.rows), 1);
    const few = names.length <= MOST_NAMED;
    const shown = (_, value) => (value === undefined || value === null ? '–' : `${value.toFixed(1)} %`);
    const series = names.map((name, place) => ({
      label: name, value: shown, spanGaps: true, width: few ? 1.6 : 0.8,
      stroke: few ? COLOURS[place % COLOURS.length] : 'rgba(128, 128, 128, 0.45)',
      dash: few ? DASHES[Math.floor(place / COLOURS.length)] : [], points: { show: rounds.length < 2 },
    }));
    const mean = meanOf(lines, rounds.length);
    if (few) this.chart.show(series, [rounds, ...lines]);
    else {
      const band = (pick) => rounds.map((_, place) => {
        const known = lines.map((line) => line[place]).filter((value) => typeof value === 'number');
        return known.length ? pick(...known) : undefined;
      });
      this.chart.show([
        ...series.map((one) => ({ ...one, label: '', class: 'unnamed' })),
        { label: 'lowest', value: shown, spanGaps: true, stroke: COLOURS[1], dash: DASHES[1] },
        { label: 'mean', value: shown, spanGaps: true, stroke: COLOURS[0], width: 2.5 },
        { label: 'highest', value: shown, spanGaps: true, stroke: COLOURS[2], dash: DASHES[1] },
      ], [rounds, ...lines, band(Math.min), mean, band(Math.max)]);
    }
    const newest = lines.map((line) => line[lastKnown(line)]).filter((value) => value !== undefined);
    const words = `Mean ${percent(newest.length ? newest.reduce((sum, value) => sum + value, 0) / newest.length : null)} at round ${rounds.at(-1)}. `
      + (this.merges.length ? `▼ and a dotted line: a merge; the last was in round ${Math.max(...this.merges)}.` : 'No merge yet.');
    setText(this.note, words);
    this.box.setAttribute('aria-label', `Accuracy by round. ${words}`);
  }

  markMerges(plot) {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const size = 4 * devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = colour('--grey');
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const round of this.merges) {
      const x = Math.round(plot.valToPos(round, 'x', true));
      if (x < left || x > left + width) continue;
      ctx.beginPath(); ctx.moveTo(x - size, top); ctx.lineTo(x + size, top); ctx.lineTo(x, top + 1.6 * size); ctx.fill();
      if (this.merges.length <= 60) {
        ctx.beginPath(); ctx.moveTo(x, top); ctx.lineTo(x, top + height); ctx.stroke();
      }
    }
    ctx.restore();
  }
}

class BytesChart {
  constructor(box, note) {
    this.box = box;
    this.note = note;
    this.chart = new Chart(box, {
      hooks: {},
      y: { scale: { distr: 3 }, values: (_, ticks) => ticks.map((tick) => (tick ? inUnits(tick) : '')) },
    });
  }

  show(store) {
    const curves = [...store.nodes.values()].map((node) => node.points.rows).filter((rows) => rows.length);
    if (!curves.length) return;
    const kinds = [2, 3, 4].map((column) => {
      const [rounds, lines] = together(curves, column);
      return [rounds, meanOf(lines, rounds.length)];
    });
    const rounds = kinds[0][0];
    const [votes, merges, rest] = kinds.map((kind) => kind[1]);
    const total = rounds.map((_, place) => (votes[place] || 0) + (merges[place] || 0) + (rest[place] || 0));
    const budget = store.about.budget;
    const soft = budget ? rounds.map((round) => Math.max(0, round - budget.warmup) * budget.soft_round) : [];
    const average = budget ? rounds.map((round) => Math.floor(round / budget.merge_every) * budget.merge) : [];
    const value = (_, count) => (count ? inUnits(count) : '–');
    const all = [
      ['all', total, 'rgba(128, 128, 128, 0.5)', []],
      ['votes', votes, COLOURS[0], []], ['merges', merges, COLOURS[2], []], ['rest', rest, COLOURS[6], []],
      ['soft labels would', soft, COLOURS[3], DASHES[1]], ['FedAvg would', average, COLOURS[1], DASHES[1]],
    ].map(([label, line, stroke, dash]) => ({ label, stroke, dash, value, spanGaps: true, width: label === 'all' ? 5 : 1.6,
      points: { show: rounds.length < 2 }, line: line.map((count) => (count > 0 ? count : null)) }));
    const used = all.filter((one) => one.line.some((count) => count));
    if (used.length) this.chart.show(used.map(({ line, ...series }) => series), [rounds, ...used.map((one) => one.line)]);
    setText(this.note, this.words(total.at(-1), soft.at(-1), average.at(-1)));
    this.box.setAttribute('aria-label', `Bytes sent by a peer. ${this.note.textContent}`);
  }

  words(total, soft, average) {
    const share = (of) => (total < of ? `${(100 * total / of).toPrecision(2)} % of that` : `${(total / of).toPrecision(2)} times that`);
    let words = `So far ${inUnits(total)} on average, headers not counted.`;
    if (soft) words += ` Soft labels would have sent ${inUnits(soft)}: this is ${share(soft)}.`;
    if (average) words += ` FedAvg would have sent ${inUnits(average)}: this is ${share(average)}.`;
    return words;
  }
}
