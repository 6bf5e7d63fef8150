// What the page knows. `take` is called with each message of the stream; taking one twice changes nothing.

const MOST_POINTS = 512;
const KEPT_ROUNDS = 24;
const KEPT_PROBLEMS = 100;

// Rows [round, ...] in order of round, as in series.py: of each `stride` rounds the last row is kept.
class Series {
  constructor() {
    this.rows = [];
    this.stride = 1;
  }

  // Rows of later rounds go: the node has resumed.
  add(row) {
    const { rows } = this;
    const first = row[0] - row[0] % this.stride;
    while (rows.length && rows.at(-1)[0] >= first) rows.pop();
    rows.push(row);
    while (this.rows.length > MOST_POINTS) {
      this.stride *= 2;
      this.rows = [...new Map(this.rows.map((kept) => [Math.floor(kept[0] / this.stride), kept])).values()];
    }
  }
}

class Store {
  constructor() { this.clear(); }

  clear() {
    this.about = {};
    this.verdict = null;
    this.nodes = new Map();  // name -> {state, points, merges}
    this.rates = new Map();  // link -> bytes a second
    this.votes = [];
    this.problems = [];
    this.changed = new Set();
    this.seen = new Map();  // link -> bytes so far
    this.when = null;
  }

  take(message, now) {
    if (message.whole) this.clear();
    if (message.about) { this.about = message.about; this.changed.add('about'); }
    this.verdict = message.verdict;
    for (const [name, state] of Object.entries(message.nodes)) this.node(name).state = state;
    for (const [name, rows] of Object.entries(message.points)) rows.forEach((row) => this.node(name).points.add(row));
    for (const [name, rows] of Object.entries(message.merges)) rows.forEach((row) => this.node(name).merges.add(row));
    if (message.present) {
      this.changed.add('nodes');
      const present = new Set(message.present);
      for (const name of this.nodes.keys()) if (!present.has(name)) this.nodes.delete(name);
    }
    for (const record of message.votes) this.addVotes(record);
    for (const entry of message.problems) this.problems.push(entry);
    this.problems.splice(0, this.problems.length - KEPT_PROBLEMS);
    if (Object.keys(message.nodes).length) this.measureTraffic(now);
    const filled = (value) => (Array.isArray(value) ? value.length : Object.keys(value).length) > 0;
    for (const key of ['nodes', 'points', 'merges', 'votes', 'problems']) if (filled(message[key])) this.changed.add(key);
    if (message.whole) ['about', 'nodes', 'points', 'votes', 'problems'].forEach((key) => this.changed.add(key));
  }

  node(name) {
    if (!this.nodes.has(name)) this.nodes.set(name, { state: null, points: new Series(), merges: new Series() });
    return this.nodes.get(name);
  }

  names() { return inOrder([...this.nodes].filter(([, node]) => node.state).map(([name]) => name)); }

  addVotes(record) {
    const place = this.votes.findIndex((kept) => kept.round === record.round);
    if (place >= 0) this.votes[place] = record;
    else this.votes.push(record);
    this.votes.sort((one, other) => one.round - other.round);
    this.votes.splice(0, this.votes.length - KEPT_ROUNDS);
  }

  // Links as [one end, other end, state, bytes so far]. Where both ends are known, each tells what it sent.
  links() {
    const found = new Map();
    for (const [name, node] of this.nodes) {
      for (const [peer, [state, sent, received]] of Object.entries(node.state ? node.state.links : {})) {
        const ends = name < peer ? [name, peer] : [peer, name];
        const key = JSON.stringify(ends);
        const known = found.get(key);
        const both = this.nodes.has(peer) && this.nodes.get(peer).state;
        const gone = node.state.state === 'unreachable';
        const bytes = both ? sent : sent + received;
        if (!known) found.set(key, { key, ends, state: gone ? 'down' : state, bytes });
        else {
          known.bytes += bytes;
          const shown = gone ? 'down' : state;
          if (shown !== 'up' && known.state === 'up') known.state = shown;
        }
      }
    }
    return [...found.values()];
  }

  measureTraffic(now) {
    const links = this.links();
    if (this.when !== null && now > this.when) {
      for (const link of links) {
        const before = this.seen.get(link.key);
        const rate = before === undefined ? 0 : Math.max(0, link.bytes - before) * 1000 / (now - this.when);
        this.rates.set(link.key, rate);
      }
    }
    this.seen = new Map(links.map((link) => [link.key, link.bytes]));
    this.when = now;
  }
}

// Votes counted by class: [[class, votes]], most votes first, among equal counts the smallest class. -1: no vote.
function histogram(votes, probe) {
  const counts = new Map();
  for (const cast of Object.values(votes)) {
    if (cast[probe] >= 0) counts.set(cast[probe], (counts.get(cast[probe]) || 0) + 1);
  }
  return [...counts].sort((one, other) => other[1] - one[1] || one[0] - other[0]);
}
