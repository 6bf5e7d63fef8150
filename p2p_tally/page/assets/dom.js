'use strict';
// Small helpers. Text of nodes and logs is put into the page as text only, never as HTML.

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'text') made.textContent = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function drawn(tag, attributes = {}) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// A screen reader reads what changes: text that is the same must not be set again.
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function inUnits(count) {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) { count /= 1000; place += 1; }
  return `${place && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[place]}`;
}

const percent = (value) => (value === null || value === undefined ? '–' : `${value.toFixed(1)} %`);

const natural = new Intl.Collator(undefined, { numeric: true });
const inOrder = (names) => [...names].sort(natural.compare);

// What a node does in its round, by its phase.
const PHASES = {
  train: 'trains', vote: 'votes', barrier: 'waits for votes', distill: 'learns from the tally', merge: 'merges', evaluate: 'is tested',
};

// The sign of a state says what its colour says.
const SIGNS = {
  playing: ['●', 'in a round'], waiting: ['…', 'waits for others'], paused: ['‖', 'paused: too few are there'], done: ['✓', 'finished'],
  stopped: ['■', 'stopped'], unreachable: ['✕', 'does not answer'],
  linked: ['○', 'seen over a link'], missing: ['?', 'link is down'],
};
