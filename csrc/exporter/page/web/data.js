// What is known of the run: read from the server by polling, or from the data inside a report.
import { byId, num } from "./format.js";

const kPollSeconds = 2;
const kHiddenPollSeconds = 20;
const kLongestPause = 30;
const kRequestSeconds = 15;

/** rows: sorted by step. newest: the last rows of each source, with the figures of all heads. */
export const store = {
  run: null, rows: [], events: [], ablations: [], newest: {train: null, probe: null},
  recorded: false, state: "waiting", retryAt: 0, lastNews: 0, head: null, trajectory: [],
};

let instance = null;
let cursor = 0;
let newsCursor = 0;
let listener = () => {};
let timer = 0;
let failures = 0;
let polling = false;

const rowKey = (row) => `${row.step} ${row.source} ${row.segment}`;

function merged(rows, added) {
  if (!added.length) return rows;
  const known = new Map(rows.map((row) => [rowKey(row), row]));
  for (const row of added) known.set(rowKey(row), row);
  return [...known.values()].sort((a, b) => a.step - b.step || a.number - b.number);
}

function addRows(rows) {
  for (const row of rows) {
    if (!row.heads) continue;
    const newest = store.newest[row.source];
    if (!newest || row.step >= newest.step) store.newest[row.source] = row;
  }
  store.rows = merged(store.rows, rows);
  if (store.head) store.trajectory = merged(store.trajectory, rows.filter((row) => row.head));
}

function forget() {
  Object.assign(store, {rows: [], events: [], ablations: [], newest: {train: null, probe: null}, trajectory: []});
  cursor = 0;
  newsCursor = 0;
}

async function ask(path) {
  const abort = new AbortController();
  const limit = setTimeout(() => abort.abort(), kRequestSeconds * 1000);
  try {
    const answer = await fetch("api/v1/" + path, {signal: abort.signal, cache: "no-store"});
    if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
    return await answer.json();
  } finally {
    clearTimeout(limit);
  }
}

const headQuery = () => (store.head ? `&head=${store.head[0]}.${store.head[1]}` : "");

async function pollOnce() {
  const asked = store.head;
  const answer = await ask(`snapshot?since=${cursor}${headQuery()}`);
  // Another process, or steps that a resumed run measures again: what we hold is not this run's.
  const restarted = instance !== null && answer.instance !== instance;
  if (restarted) {
    forget();
    instance = answer.instance;
    return pollOnce();
  }
  instance = answer.instance;
  if (answer.reset) forget();
  if (asked === store.head) addRows(answer.snapshots);
  else addRows(answer.snapshots.map(({head, ...row}) => row));
  const moved = answer.next !== cursor;
  cursor = answer.next;
  if (answer.reset && store.head) await loadTrajectory();
  if (moved || store.run === null) {
    const news = await ask(`events?since=${newsCursor}`);
    if (news.reset) Object.assign(store, {events: [], ablations: []});
    newsCursor = news.next;
    store.events.push(...news.events);
    store.ablations.push(...news.ablations);
    store.lastNews = Date.now();
  }
  store.run = await ask("run");
}

async function loadTrajectory() {
  const asked = store.head;
  const answer = await ask(`snapshot?since=0&points=500${headQuery()}`);
  if (asked !== store.head) return;
  store.trajectory = merged(store.trajectory, answer.snapshots.filter((row) => row.head));
}

async function poll() {
  if (polling) return;
  polling = true;
  clearTimeout(timer);
  let pause = document.hidden ? kHiddenPollSeconds : kPollSeconds;
  try {
    await pollOnce();
    failures = 0;
    store.state = !store.rows.length ? "waiting" : store.run.live ? "live" : "following";
  } catch {
    pause = Math.min(kLongestPause, 2 ** Math.min(failures, 5)) * (0.8 + 0.4 * Math.random());
    failures += 1;
    store.state = "lost";
    store.retryAt = Date.now() + pause * 1000;
  }
  polling = false;
  timer = setTimeout(poll, pause * 1000);
  listener();
}

/** Shows this head's figures over training; null: none. */
export async function selectHead(id) {
  store.head = id;
  store.trajectory = [];
  if (store.recorded) {
    store.trajectory = store.rows.filter((row) => row.heads).map((row) => ({...row, head: headOf(row, id)}))
      .filter((row) => row.head);
    return;
  }
  try {
    await loadTrajectory();
  } catch {
    poll();  // which says that the connection is lost, and asks again
  }
}

/** The figures of one head in a row that has all of them, as the API gives them for one; or null. */
export function headOf(row, id) {
  const at = row.heads.id.findIndex((other) => other[0] === id[0] && other[1] === id[1]);
  if (at < 0) return null;
  const pick = (columns) => Object.fromEntries(
    Object.entries(columns).filter(([name]) => name !== "patterns").map(([name, list]) => [name, list[at]]));
  return {...pick(row.heads), patterns: row.heads.patterns.map(pick)};
}

/** The newest row with all heads: of the probe where there is one. */
export const newestHeads = () => store.newest.probe ?? store.newest.train;
export const patternsOf = () => newestHeads()?.patterns ?? [];

/** Where a row lies on the horizontal axis. */
export const position = (row, axis) => num(axis === "tokens" ? row.tokens : row.step);

/** Starts reading; `changed` is called after everything that may have changed the store. */
export function start(changed) {
  listener = changed;
  const inside = byId("recorded");
  if (inside) {
    const data = JSON.parse(inside.textContent);
    store.recorded = true;
    store.state = "recorded";
    store.run = data.run;
    store.events = data.news.events;
    store.ablations = data.news.ablations;
    addRows(data.timeline.snapshots);
    changed();
    return;
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
  window.addEventListener("online", poll);
  poll();
}
