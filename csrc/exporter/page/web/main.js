// Puts the parts together: what is drawn when the store has changed, and what a person chooses.
import { drawAblations } from "./ablations.js";
import { drawCircuits, drawEvents } from "./circuits.js";
import { newestHeads, selectHead, start, store } from "./data.js";
import { byId, num } from "./format.js";
import { choosePattern, chosenPattern, drawGrid } from "./grid.js";
import { drawHead } from "./head.js";
import { drawFacts, drawHealth, drawNulls, drawSinks, drawStatus, drawTraining } from "./run.js";

/** Tokens are an axis only where the training program told them. */
function chosenAxis() {
  const told = !store.rows.length || store.rows.some((row) => num(row.tokens) > 0);
  document.querySelector("input[name=axis][value=tokens]").disabled = !told;
  if (!told) document.querySelector("input[name=axis][value=step]").checked = true;
  return document.querySelector("input[name=axis]:checked").value;
}

async function choose(id, pattern) {
  if (pattern) choosePattern(pattern);
  await selectHead(id);
  drawAll();
  // On a phone the charts lie below the grid.
  if (matchMedia("(max-width: 900px)").matches) byId("head").scrollIntoView({block: "start"});
}

/** The best head of the pattern, so that the page never begins with an empty half. */
function firstHead() {
  const row = newestHeads();
  const p = row?.patterns.indexOf(chosenPattern()) ?? -1;
  if (!row || !row.heads.id.length) return null;
  const values = p < 0 ? [] : row.heads.patterns[p].selectivity.map(num);
  const best = values.reduce((top, value, i) => (value > (values[top] ?? -Infinity) ? i : top), 0);
  return row.heads.id[best];
}

function drawAll() {
  drawStatus();
  drawFacts();
  drawGrid(choose, drawAll);
  drawCircuits(choose);
  drawHead(chosenPattern(), chosenAxis());
  drawTraining(chosenAxis());
  drawAblations();
  drawNulls(chosenAxis());
  drawSinks();
  drawEvents(byId("head-events").checked);
  drawHealth();
}

async function changed() {
  drawAll();
  if (store.head !== null || !newestHeads()) return;
  await selectHead(firstHead());
  drawAll();
}

for (const input of document.querySelectorAll("input[name=axis]")) input.addEventListener("change", drawAll);
byId("head-events").addEventListener("change", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
setInterval(drawStatus, 1000);
start(changed);
