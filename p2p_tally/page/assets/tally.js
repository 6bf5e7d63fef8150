// The tally at work: a few probes of the last round, the votes on them counted, the consensus and the label.

// Up to so many voters are named without being asked for.
const FEW_VOTERS = 12;

// So many of the last records have pictures.
const WITH_PICTURES = 3;

// The record with most voters, among equals the newest: of the last round some nodes may not have told yet.
function fullest(records) {
  const voters = (record) => Object.keys(record.votes).length;
  return records.reduce((best, record) => (best && voters(best) > voters(record) ? best : record), null);
}

class Tally {
  constructor(box, note) {
    this.box = box;
    this.note = note;
    this.chosen = new Map();  // probe -> whether the reader wants its list of voters open
  }

  show(store) {
    const record = fullest(store.votes.slice(-WITH_PICTURES));
    if (!record) return;
    this.box.dataset.round = record.round;
    const voters = Object.keys(record.votes).length;
    const words = `Round ${record.round}: ${voters} ${voters === 1 ? 'node' : 'nodes'} voted on probes, which are public examples. `
      + 'The consensus is the class with most votes.';
    setText(this.note, words);
    const probes = Math.min(6, Math.max(0, ...Object.values(record.votes).map((cast) => cast.length)));
    const focus = [...this.box.querySelectorAll('summary')].indexOf(document.activeElement);
    this.box.replaceChildren(...Array.from({ length: probes }, (_, probe) => this.card(record, probe, voters)));
    if (focus >= 0 && focus < probes) this.box.querySelectorAll('summary')[focus].focus();
  }

  card(record, probe, voters) {
    const counts = histogram(record.votes, probe);
    const consensus = counts.length ? counts[0][0] : 'none';
    const label = record.labels && record.labels[probe] >= 0 ? record.labels[probe] : null;
    const card = element('article', { class: 'probe', 'aria-label': `Probe ${probe + 1}` });
    const view = record.views[probe];
    const head = element('div', { class: 'head' });
    if (view) head.append(view.text === undefined ? picture(view, `Picture of probe ${probe + 1}`) : element('pre', { text: view.text }));
    const result = element('div', {}, element('p', {}, 'consensus ', element('b', { text: consensus })));
    if (label !== null) {
      const right = label === consensus;
      const sign = element('span', { class: right ? 'right' : 'wrong', text: right ? '✓ right' : '✕ wrong' });
      result.append(element('p', {}, 'label ', element('b', { text: label })), element('p', {}, sign));
    }
    head.append(result);
    card.append(head);
    counts.slice(0, 4).forEach(([name, votes], place) => {
      const bar = element('i');
      bar.style.width = `${100 * votes / voters}%`;
      const count = element('span', { class: 'of', text: votes });
      card.append(element('div', { class: place ? 'bar' : 'bar first' }, element('span', { text: `class ${name}` }), bar, count));
    });
    if (counts.length > 4) card.append(element('p', { text: `and ${counts.length - 4} more classes` }));
    const list = element('dl');
    for (const [name] of counts) {
      const whose = inOrder(Object.keys(record.votes).filter((node) => record.votes[node][probe] === name));
      list.append(element('dt', { text: name }), element('dd', { text: whose.join(', ') }));
    }
    const silent = inOrder(Object.keys(record.votes).filter((node) => record.votes[node][probe] < 0));
    if (silent.length) list.append(element('dt', { text: 'no vote' }), element('dd', { text: silent.join(', ') }));
    const summary = element('summary', { text: 'who voted what' });
    const details = element('details', {}, summary, list);
    details.open = this.chosen.get(probe) ?? (voters <= FEW_VOTERS && innerWidth > 760);
    summary.addEventListener('click', () => this.chosen.set(probe, !details.open));
    card.append(details);
    return card;
  }
}

function picture(view, label) {
  const canvas = element('canvas', { width: view.width, height: view.height, role: 'img', 'aria-label': label });
  const context = canvas.getContext('2d');
  const image = context.createImageData(view.width, view.height);
  const bytes = Uint8Array.from(atob(view.pixels), (char) => char.charCodeAt(0));
  for (let pixel = 0; pixel < view.width * view.height; pixel += 1) {
    for (let part = 0; part < 3; part += 1) {
      image.data[4 * pixel + part] = bytes[view.channels * pixel + (view.channels === 1 ? 0 : part)];
    }
    image.data[4 * pixel + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
