// Follows the event stream and shows what has changed. The page only reads.

const store = new Store();
const graph = new Graph(byId('graph'));
const views = {
  accuracy: new AccuracyChart(byId('accuracy'), byId('accuracy-note')),
  bytes: new BytesChart(byId('bytes'), byId('bytes-note')),
  tally: new Tally(byId('tally'), byId('tally-note')),
  agreement: new Agreement(byId('agreement'), byId('agreement-note'), byId('agreement-class')),
};
const MARKS = { well: '✓', watch: '!', bad: '✕' };
const rowsByName = new Map();
let planned = false;

function showAbout() {
  const { method, topology, nodes, data, rounds, own, shown } = store.about;
  if (!method) return;
  const parts = [`method ${method}`, `graph ${topology}`, `${nodes} nodes`, `data ${data}`, `${rounds} rounds`];
  if (own) parts.push(`seen from ${own}`);
  else if (shown < nodes) parts.push(`the first ${shown} nodes are shown`);
  setText(byId('about'), parts.join(' · '));
}

function showVerdict() {
  const { verdict } = store;
  if (!verdict) return;
  const box = byId('verdict');
  box.classList.remove('well', 'watch', 'bad');
  box.classList.add(verdict.level in MARKS ? verdict.level : 'watch');
  const mark = MARKS[verdict.level] || '!';
  setText(byId('verdict-words'), `${mark} ${verdict.words}`);
  setText(byId('verdict-progress'), verdict.progress);
  document.title = [mark, store.about.own, 'p2p-tally'].filter(Boolean).join(' ');
  const lines = verdict.concerns.slice(0, 12).map((one) => element('li', {}, element('b', { text: one.node }), ` ${one.why}`));
  if (verdict.concerns.length > 12) lines.push(element('li', { text: `and ${verdict.concerns.length - 12} more` }));
  byId('concerns').replaceChildren(...lines);
  const rounds = store.names().map((name) => store.nodes.get(name).state.round);
  if (rounds.length && store.about.rounds) byId('progress').value = Math.max(...rounds) / store.about.rounds;
}

function showNodes() {
  const { links, total } = graph.show(store);
  setText(byId('traffic'), `${links} links, now ${inUnits(total)}/s. A wider line carries more.`);
  const body = byId('nodes').tBodies[0];
  const names = store.names();
  for (const [name, row] of rowsByName) if (!names.includes(name)) { row.remove(); rowsByName.delete(name); }
  names.forEach((name, place) => {
    let row = rowsByName.get(name);
    if (!row) {
      row = element('tr', {}, element('td', { class: 'name', text: name, title: name }), element('td'), ...[0, 1, 2].map(() => element('td', { class: 'number' })), element('td'));
      rowsByName.set(name, row);
    }
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
    const { state } = store.nodes.get(name);
    const [sign, words] = SIGNS[state.state];
    row.cells[1].className = state.state;
    const last = store.nodes.get(name).points.rows.at(-1);
    setText(row.cells[1], `${sign} ${state.state === 'playing' ? PHASES[state.phase] || words : words}`);
    setText(row.cells[2], String(state.round));
    setText(row.cells[3], percent(state.accuracy));
    setText(row.cells[4], last ? inUnits(last[2] + last[3] + last[4]) : '–');
    setText(row.cells[5], (state.missing || []).join(', '));
  });
  const states = new Set([...graph.groups.values()].map((group) => group.getAttribute('class')));
  const key = Object.entries(SIGNS).filter(([state]) => states.has(state));
  byId('states').replaceChildren(...key.map(([state, [sign, words]]) =>
    element('li', { class: state }, element('span', { class: 'sign', text: state === 'playing' ? 'number:' : sign }), ` ${state === 'playing' ? 'the last round it finished' : words}`)));
}

function showProblems() {
  const time = (seconds) => new Date(1000 * seconds);
  byId('problems').replaceChildren(...[...store.problems].reverse().map((entry) => {
    const when = time(entry.time);
    const line = element('li', {}, element('time', { datetime: when.toISOString(), text: when.toLocaleTimeString() }));
    if (entry.node) line.append(element('b', { text: entry.node }), ' ');
    if (entry.round !== undefined && entry.round !== null) line.append(`round ${entry.round}: `);
    if (entry.peer) line.append(`about ${entry.peer}: `);
    line.append(element('span', { class: entry.level === 'error' ? 'error' : 'warning', text: entry.message }));
    return line;
  }));
  byId('problems-note').hidden = store.problems.length > 0;
}

function show() {
  planned = false;
  const { changed } = store;
  store.changed = new Set();
  if (changed.has('about')) showAbout();
  showVerdict();
  if (changed.has('nodes') || changed.has('points')) showNodes();
  if (changed.has('points') || changed.has('merges')) { views.accuracy.show(store); views.bytes.show(store); }
  if (changed.has('votes')) { views.tally.show(store); views.agreement.show(store); }
  if (changed.has('problems')) showProblems();
  document.body.dataset.serial = store.serial;
}

function plan() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(show);
}

function contact(words, lost) {
  setText(byId('contact'), words);
  byId('contact').classList.toggle('lost', lost);
}

function follow() {
  const stream = new EventSource('events');
  let since = null;
  stream.onmessage = (event) => {
    const message = JSON.parse(event.data);
    store.take(message, performance.now());
    store.serial = message.serial;
    since = null;
    contact('live', false);
    plan();
  };
  stream.addEventListener('end', () => {
    stream.close();
    contact('This page is no longer served. What it shows is how it ended.', false);
    setTimeout(comeBack, 2000);
  });
  stream.onerror = () => {
    since = since || new Date();
    contact(`No contact with ${location.host} since ${since.toLocaleTimeString()}; trying again.`, true);
    // A refused stream is not tried again by the browser.
    if (stream.readyState === EventSource.CLOSED) setTimeout(follow, 2000);
  };
}

// After its end a node may be started again at the same address.
async function comeBack() {
  try {
    await fetch('.', { method: 'HEAD' });
    follow();
  } catch {
    setTimeout(comeBack, 2000);
  }
}

follow();
