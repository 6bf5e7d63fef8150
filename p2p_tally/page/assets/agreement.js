// Who agrees with whom: the share of probes on which two nodes voted for the same class, over the rounds at hand.

const MOST_IN_TABLE = 12;
const LEAST_SPAN = 0.2;  // of shares, from the lightest shade to the darkest

// Names without what all of them begin with, up to the number: node-7 and node-8 are 7 and 8.
function shortened(names) {
  let length = 0;
  while (names.length > 1 && length < names[0].length && names.every((name) => name[length] === names[0][length])) length += 1;
  length = names[0].slice(0, length).replace(/\d+$/, '').length;
  return names.some((name) => name.length === length) ? names : names.map((name) => name.slice(length));
}

class Agreement {
  constructor(box, note, choice) {
    this.box = box;
    this.note = note;
    this.choice = choice;
    choice.addEventListener('change', () => this.store && this.show(this.store));
  }

  show(store) {
    this.store = store;
    if (!store.votes.length) return;
    const names = inOrder(new Set(store.votes.flatMap((record) => Object.keys(record.votes))));
    const seen = new Set();
    const wanted = this.choice.value === '' ? null : Number(this.choice.value);
    const count = names.length;
    const same = new Uint32Array(count * count);  // of two nodes, the higher one's row: probes with the same vote
    const both = new Uint32Array(count * count);  // and probes on which both voted
    const column = new Int32Array(count);
    let probes = 0;
    for (const record of store.votes) {
      const cast = names.map((name) => record.votes[name] || []);
      const longest = Math.max(...cast.map((votes) => votes.length));
      for (let probe = 0; probe < longest; probe += 1) {
        const counts = histogram(record.votes, probe);
        if (!counts.length) continue;
        const [consensus] = counts[0];
        seen.add(consensus);
        if (wanted !== null && consensus !== wanted) continue;
        probes += 1;
        for (let one = 0; one < count; one += 1) {
          const vote = cast[one][probe] ?? -1;
          column[one] = vote;
          if (vote < 0) continue;
          for (let other = 0, at = one * count; other < one; other += 1, at += 1) {
            if (column[other] >= 0) both[at] += 1;
            if (column[other] === vote) same[at] += 1;
          }
        }
      }
    }
    this.offer([...seen].sort((one, other) => one - other));
    const share = (one, other) => {
      const at = Math.max(one, other) * count + Math.min(one, other);
      return both[at] ? same[at] / both[at] : null;
    };
    const shade = this.shades(names, share);
    this.box.replaceChildren(names.length <= MOST_IN_TABLE ? this.table(names, share, shade) : this.picture(names, share, shade));
    setText(this.note, this.words(names, share, probes, store.votes.length));
  }

  offer(classes) {
    const have = [...this.choice.options].map((option) => option.value);
    for (const name of classes.slice(0, 200)) {
      if (!have.includes(String(name))) this.choice.append(element('option', { value: name, text: `class ${name}` }));
    }
  }

  // The shade of a share: from the least to the greatest there is. Shares that hardly differ look alike.
  shades(names, share) {
    const found = names.flatMap((_, one) => names.slice(0, one).map((__, other) => share(one, other))).filter((value) => value !== null);
    const high = found.reduce((most, value) => Math.max(most, value), 0);
    const low = Math.min(high - LEAST_SPAN, found.reduce((least, value) => Math.min(least, value), 1));
    return (value) => 0.06 + 0.59 * (value - low) / (high - low);
  }

  table(names, share, shade) {
    const table = element('table');
    const head = element('tr', {}, element('td'), ...shortened(names).map((short, place) => element('th', { scope: 'col', text: short, title: names[place], 'aria-label': names[place] })));
    table.append(element('thead', {}, head));
    const body = element('tbody');
    names.forEach((name, one) => {
      const row = element('tr', {}, element('th', { scope: 'row', text: name }));
      names.forEach((_, other) => {
        const value = one === other ? null : share(one, other);
        const cell = element('td', { text: value === null ? '' : Math.round(100 * value) });
        if (value !== null) cell.style.setProperty('--share', shade(value).toFixed(3));
        row.append(cell);
      });
      body.append(row);
    });
    table.append(body);
    return table;
  }

  picture(names, share, shade) {
    const canvas = element('canvas', { width: names.length, height: names.length, role: 'img', 'aria-label': 'Shares of agreement; the note below names the ends' });
    const context = canvas.getContext('2d');
    const heat = colour('--heat');
    names.forEach((_, one) => names.forEach((__, other) => {
      const value = one === other ? null : share(one, other);
      if (value === null) return;
      context.fillStyle = `rgba(${heat}, ${shade(value)})`;
      context.fillRect(other, one, 1, 1);
    }));
    canvas.addEventListener('mousemove', (event) => {
      const cell = (at, size) => Math.min(names.length - 1, Math.max(0, Math.floor(at / size * names.length)));
      const [other, one] = [cell(event.offsetX, canvas.clientWidth), cell(event.offsetY, canvas.clientHeight)];
      const value = one === other ? null : share(one, other);
      canvas.title = value === null ? names[one] : `${names[one]} and ${names[other]}: ${Math.round(100 * value)} %`;
    });
    return canvas;
  }

  words(names, share, probes, rounds) {
    const pairs = [];
    names.forEach((name, one) => names.slice(0, one).forEach((peer, other) => {
      const value = share(one, other);
      if (value !== null) pairs.push([value, `${peer} and ${name}`]);
    }));
    if (!pairs.length) return 'Not enough votes of two nodes yet.';
    pairs.sort((one, other) => one[0] - other[0]);
    const mean = pairs.reduce((sum, pair) => sum + pair[0], 0) / pairs.length;
    const tell = ([value, who]) => `${who} (${Math.round(100 * value)} %)`;
    return `Per cent of ${probes} probes of ${rounds} ${rounds === 1 ? 'round' : 'rounds'} with the same vote. `
      + `Mean ${Math.round(100 * mean)} %. Least alike: ${tell(pairs[0])}. Most alike: ${tell(pairs.at(-1))}.`;
  }
}
