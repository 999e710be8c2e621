"use strict";
// Draws the plots, shows a net beside the front, sorts tables. Users' text enters as text, never as markup.
const DATA = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const element = (name, text) => Object.assign(document.createElement(name), { textContent: text ?? "" });

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: of("--line"), zerolinecolor: of("--line"), linecolor: of("--line") };
  const found = { "font.color": of("--text"), paper_bgcolor: of("--ground"), plot_bgcolor: of("--ground") };
  found["hoverlabel.bgcolor"] = of("--soft");
  found["hoverlabel.font.color"] = of("--text");
  found["hoverlabel.bordercolor"] = of("--line");
  for (const [key, value] of Object.entries(axis)) {
    found["xaxis." + key] = value;
    found["yaxis." + key] = value;
  }
  return found;
}

function drawAll() {
  for (const [name, plot] of Object.entries(DATA.plots)) {
    const place = document.getElementById("plot-" + name);
    // The one button, shown while the mouse is over a plot, saves it as a picture.
    const toImageButtonOptions = { format: "svg", filename: name };
    const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage"]], toImageButtonOptions };
    Plotly.newPlot(place, plot.data, plot.layout, config).then(() => Plotly.relayout(place, colours()));
    const pick = (event) => {
      const found = event.points[0] && event.points[0].customdata;
      if (found) show(found[0]);
    };
    place.on("plotly_hover", pick);
    place.on("plotly_click", pick);
  }
}

const amount = (value) => {
  const unit = [["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, size]) => value >= size);
  return unit ? Number((value / unit[1]).toPrecision(3)) + " " + unit[0] : String(value);
};
const SAID = { macs: amount, params: amount, accuracy: (v) => v.toFixed(4) };

function gained(value, bound) {
  if (value === null) return null;
  if (bound) return (bound === "lower" ? ">= " : "<= ") + value.toFixed(1);
  return (value >= 0 ? "+" : "") + value.toFixed(2);
}

function list(pairs, kind) {
  const made = element("dl");
  made.className = kind;
  for (const [name, value] of pairs) {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value === null ? "-" : SAID[name] ? SAID[name](value) : String(value)));
    made.append(pair);
  }
  return made;
}

function show(place) {
  const panel = document.getElementById("panel");
  if (!panel) return;
  const row = DATA.nets.rows[place];
  const facts = Object.fromEntries(DATA.nets.columns.map((name, i) => [name, row[i]]));
  const genes = row[row.length - 1];
  const drawing = DATA.drawings[facts.net];
  facts.gain = gained(facts.gain, facts.gain_bound);
  const shown = DATA.nets.columns.filter((name) => !["trial", "net", "gain_bound"].includes(name)).map((name) => [name, facts[name]]);
  panel.replaceChildren(element("h4", `trial ${facts.trial}: ${facts.net}`), list(shown, "facts"));
  if (drawing) {
    panel.append(document.importNode(new DOMParser().parseFromString(drawing, "image/svg+xml").documentElement, true));
  } else {
    panel.append(element("p", `Not drawn here: alternas show RUN ${facts.trial} --svg net.svg draws it.`));
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
drawAll();
const rank = DATA.nets.columns.indexOf("rank");
if (DATA.nets.rows.length) show(Math.max(0, DATA.nets.rows.findLastIndex((row) => row[rank] === 1))); // the most accurate
dark.addEventListener("change", () => {
  for (const name of Object.keys(DATA.plots)) Plotly.relayout("plot-" + name, colours());
});
