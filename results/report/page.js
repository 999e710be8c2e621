"use strict";
// Shows the net under the mouse, hides series, sorts tables. Users' text enters as text, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const element = (name, text) => Object.assign(document.createElement(name), { textContent: text ?? "" });

const NEAR = 24; // pixels of the plot around a point
let held = false; // whether a click holds the panel

// The points of a drawn plot that are nets: each mark of a path begins with M X Y, its middle.
function pointsOf(svg) {
  const points = [];
  for (const path of svg.querySelectorAll("path[data-nets]")) {
    const nets = path.dataset.nets.split(" ").map(Number);
    const middles = [...path.getAttribute("d").matchAll(/M([\d.]+) ([\d.]+)/g)];
    middles.forEach(([, x, y], i) => points.push({ x: Number(x), y: Number(y), net: nets[i], group: path.parentNode }));
  }
  return points;
}

function nearest(svg, points, event) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  let best = null, least = NEAR * NEAR;
  for (const point of points) {
    const far = (point.x - at.x) ** 2 + (point.y - at.y) ** 2;
    if (far < least && !point.group.classList.contains("p-off")) [best, least] = [point, far];
  }
  return best;
}

function follow(svg) {
  let points = null, pick = null;
  const ring = document.createElementNS(svg.namespaceURI, "circle");
  for (const [name, value] of [["r", 9], ["class", "pick"], ["visibility", "hidden"]]) ring.setAttribute(name, value);
  svg.append(ring);
  const point = (event) => {
    points ??= pointsOf(svg);
    pick = nearest(svg, points, event);
    ring.setAttribute("visibility", pick ? "visible" : "hidden");
    tell(pick && pick.net, event);
    if (!pick) return;
    ring.setAttribute("cx", pick.x);
    ring.setAttribute("cy", pick.y);
    if (!held) show(pick.net);
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerleave", () => tell(null));
  svg.addEventListener("click", (event) => {
    point(event);
    held = Boolean(pick) && !(held && event.detail > 1);
    if (pick) show(pick.net);
  });
}

function tell(net, event) {
  const tip = document.getElementById("tip");
  tip.hidden = net === null;
  if (tip.hidden) return;
  const facts = factsOf(net), metric = DATA.nets.columns[5];
  tip.textContent = `net ${facts.trial}, ${facts.family}: ${metric} ${said(metric, facts[metric])}, ${amount(facts.macs)} MACs`;
  tip.style.left = Math.max(4, Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = event.pageY + 16 + "px";
}

// A name in a legend shows or hides its series, in the plot for wide pages and in that for narrow ones.
function switchSeries(key) {
  const found = key.closest(".plot").querySelectorAll(`[data-s="${key.dataset.s}"]`);
  for (const group of found) group.classList.toggle("p-off");
}

const amount = (value) => {
  const unit = [["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, size]) => value >= size);
  return unit ? Number((value / unit[1]).toPrecision(3)) + " " + unit[0] : String(value);
};
const SAID = { accuracy: (v) => v.toFixed(4) };
for (const cost of DATA.nets.costs) SAID[cost] = amount;

function gained(value, bound) {
  if (value === null) return null;
  if (bound) return (bound === "lower" ? ">= " : "<= ") + value.toFixed(1);
  return (value >= 0 ? "+" : "") + value.toFixed(2);
}

const said = (name, value) => (value === null ? "-" : SAID[name] ? SAID[name](value) : String(value));

function factsOf(place) {
  return Object.fromEntries(DATA.nets.columns.map((name, i) => [name, DATA.nets.rows[place][i]]));
}

function list(pairs, kind) {
  const made = element("dl");
  made.className = kind;
  for (const [name, value] of pairs) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", said(name, value)));
    made.append(pair);
  }
  return made;
}

function show(place) {
  const panel = document.getElementById("panel");
  if (!panel) return;
  const row = DATA.nets.rows[place], facts = factsOf(place);
  const genes = row[row.length - 1];
  const drawing = DATA.drawings[facts.net];
  facts.gain = gained(facts.gain, facts.gain_bound);
  const shown = DATA.nets.columns.filter((name) => !["trial", "net", "gain_bound", "note"].includes(name));
  panel.replaceChildren(element("h4", `trial ${facts.trial}: ${facts.net}`), list(shown.map((name) => [name, facts[name]]), "facts"));
  if (facts.note) panel.append(element("p", facts.note));
  if (drawing) {
    panel.append(document.importNode(new DOMParser().parseFromString(drawing, "image/svg+xml").documentElement, true));
  } else {
    const how = `Not drawn here: alternas show RUN ${facts.trial} --svg net.svg draws it.`;
    panel.append(element("p", DATA.undrawn.includes(place) ? "Not drawn: its code is not of alternas." : how));
  }
  const known = DATA.nets.genes.map((name, i) => [name, genes[i]]).filter(([, value]) => value !== null);
  if (known.length) panel.append(list(known, "genes"));
}

function sortBy(table, column) {
  const heading = table.tHead.rows[0].cells[column];
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => {
    const cell = row.cells[column];
    if (!("v" in cell.dataset)) return cell.textContent;
    return cell.dataset.v === "None" ? null : Number(cell.dataset.v);
  };
  const order = (a, b) => (typeof a === "string" && typeof b === "string" ? a.localeCompare(b) : a - b);
  const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : down ? order(b, a) : order(a, b)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((cell, i) => cell.firstChild.addEventListener("click", () => sortBy(table, i)));
}
for (const button of document.querySelectorAll("button.show")) {
  button.addEventListener("click", () => {
    show(Number(button.dataset.net));
    document.getElementById("panel").scrollIntoView({ block: "nearest" });
  });
}
for (const svg of document.querySelectorAll("#plot-front svg")) follow(svg);
for (const key of document.querySelectorAll(".plot .p-k")) {
  key.setAttribute("role", "button");
  key.setAttribute("tabindex", 0);
  key.addEventListener("click", () => switchSeries(key));
  key.addEventListener("keydown", (event) => event.key === "Enter" && switchSeries(key));
}
if (DATA.nets.rows.length) show(DATA.take);
