// The graph: positions by a small force layout that ends at rest, lines as wide as their traffic, a sign for each state.

// On a narrow screen the drawing is smaller, so that its text is not.
const sizeFor = (width) => (width && width < 480 ? [360, 330] : [640, 420]);

class Graph {
  constructor(svg) {
    this.svg = svg;
    this.shape = '';
    this.lines = new Map();
    this.groups = new Map();
  }

  show(store) {
    const links = store.links();
    const known = store.names();
    const names = inOrder(new Set([...known, ...links.flatMap((link) => link.ends)]));
    const size = sizeFor(this.svg.clientWidth);
    const shape = JSON.stringify([names, links.map((link) => link.key).sort(), size]);
    if (shape !== this.shape) this.rebuild(names, links, shape, size);
    const most = Math.max(1, ...links.map((link) => store.rates.get(link.key) || 0));
    let total = 0;
    for (const link of links) {
      const rate = link.state === 'up' ? store.rates.get(link.key) || 0 : 0;
      total += rate;
      const line = this.lines.get(link.key);
      const kind = link.state === 'up' ? (rate > 0 ? 'busy' : 'quiet') : link.state === 'down' || link.state === 'refused' ? 'down' : 'idle';
      line.setAttribute('class', kind);
      line.setAttribute('stroke-width', (1 + 3.5 * Math.sqrt(rate / most)).toFixed(2));
    }
    const missing = new Set(known.flatMap((name) => store.nodes.get(name).state.missing || []));
    for (const name of names) this.mark(name, this.stateOf(store, name, missing), store);
    const rounds = known.map((name) => `${name} ${store.nodes.get(name).state.state}`);
    this.svg.setAttribute('aria-label', `${names.length} nodes, ${links.length} links. ${rounds.slice(0, 16).join(', ')}`);
    return { links: links.length, total };
  }

  stateOf(store, name, missing) {
    const node = store.nodes.get(name);
    return node && node.state ? node.state.state : missing.has(name) ? 'missing' : 'linked';
  }

  mark(name, state, store) {
    const group = this.groups.get(name);
    group.setAttribute('class', state);
    const node = store.nodes.get(name);
    const [sign, words] = SIGNS[state];
    const playing = state === 'playing' && group.roomy;
    setText(group.sign, playing ? String(node.state.round) : sign);
    setText(group.title, `${name}: ${words}${node && node.state ? `, round ${node.state.round}` : ''}`);
  }

  rebuild(names, links, shape, size) {
    this.shape = shape;
    this.svg.setAttribute('viewBox', `0 0 ${size.join(' ')}`);
    const places = layout(names, links.map((link) => link.ends), size);
    const radius = names.length > 24 ? 9 : names.length > 12 ? 13 : 17;
    this.svg.replaceChildren();
    this.svg.classList.toggle('lively', links.length <= 60);
    this.svg.classList.toggle('crowded', links.length > 200);
    this.lines.clear();
    this.groups.clear();
    for (const link of links) {
      const [one, other] = link.ends.map((name) => places.get(name));
      const line = drawn('line', { x1: one.x, y1: one.y, x2: other.x, y2: other.y });
      this.lines.set(link.key, line);
      this.svg.append(line);
    }
    for (const name of names) {
      const { x, y } = places.get(name);
      const group = drawn('g');
      group.title = drawn('title');
      group.sign = drawn('text', { x, y: y + 4.5 });
      group.roomy = radius >= 13;
      group.append(group.title, drawn('circle', { cx: x, cy: y, r: radius }), group.sign);
      if (names.length <= 24) {
        const label = drawn('text', { x, y: y + radius + 14, class: 'label' });
        label.textContent = name.length > 16 ? `${name.slice(0, 7)}…${name.slice(-7)}` : name;
        group.append(label);
      }
      this.groups.set(name, group);
      this.svg.append(group);
    }
  }
}

// Nodes repel each other, links pull. It begins with a circle; of a full mesh the circle is what it ends with.
function layout(names, edges, [width, height]) {
  const count = names.length;
  const places = names.map((_, place) => {
    const angle = 2 * Math.PI * place / Math.max(1, count) - Math.PI / 2;
    return { x: count > 1 ? Math.cos(angle) : 0, y: count > 1 ? Math.sin(angle) : 0 };
  });
  const rank = new Map(names.map((name, place) => [name, place]));
  const pairs = edges.map((ends) => ends.map((name) => rank.get(name)));
  if (pairs.length < count * (count - 1) / 2) {
    const wanted = 1.6 / Math.sqrt(Math.max(1, count));
    for (let step = 0; step < 300; step += 1) {
      const heat = 0.1 * (1 - step / 300);
      const moves = places.map(() => ({ x: 0, y: 0 }));
      const push = (one, other, force) => {
        const dx = places[one].x - places[other].x || 1e-3 * (one - other);
        const dy = places[one].y - places[other].y || 1e-3;
        const far = Math.hypot(dx, dy);
        const amount = force(far) / far;
        moves[one].x += dx * amount; moves[one].y += dy * amount;
        moves[other].x -= dx * amount; moves[other].y -= dy * amount;
      };
      for (let one = 0; one < count; one += 1) {
        for (let other = 0; other < one; other += 1) push(one, other, (far) => wanted * wanted / far);
      }
      for (const [one, other] of pairs) push(one, other, (far) => -far * far / wanted);
      places.forEach((place, rank_) => {
        const length = Math.hypot(moves[rank_].x, moves[rank_].y) || 1;
        place.x += moves[rank_].x / length * Math.min(length, heat);
        place.y += moves[rank_].y / length * Math.min(length, heat);
      });
    }
  }
  const fit = (axis, size, margin) => {
    const values = places.map((place) => place[axis]);
    const low = Math.min(...values);
    const span = Math.max(...values) - low || 1;
    return (value) => (count > 1 ? margin + (value - low) / span * (size - 2 * margin) : size / 2);
  };
  const [left, top] = [fit('x', width, 50), fit('y', height - 14, 30)];
  return new Map(names.map((name, place) => [name, { x: Math.round(left(places[place].x)), y: Math.round(top(places[place].y)) }]));
}
