"use strict";
/* The page's own script, part 1: data, text, theme, and the one selected layer that every part listens to.
   Text of a capture only ever reaches the page as textContent. */
const DATA = JSON.parse(document.getElementById("xsp-data").textContent);
const textOf = (number) => DATA.strings[number];

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

const report = (window.xspReport = {
  layer: -1,
  errors: [],
  listeners: [],
  onLayer(listener) { this.listeners.push(listener); },
  select(layer) {
    const index = Number.isFinite(layer) && layer >= 0 && layer !== this.layer ? layer : -1;
    this.layer = index;
    for (const listener of this.listeners) listener(index);
  },
});
window.addEventListener("error", (event) => report.errors.push(String(event.message)));
window.addEventListener("unhandledrejection", (event) => report.errors.push(String(event.reason)));

/* --- what the address holds: #PART&show=BLOCK&layer=5&from=…&to=…&node=…&sort=…&search=…&open=…&theme=… ------- */
const place = {}; // part, and what stands behind the & of the address
const placeListeners = [];
/* A table, chart or drawing whose state is in the address while it is on the screen. ``read``: key → value, null the
   initial one; ``apply``: takes the state from the address. Returns what writes it down. */
function remember(holder, read, apply) {
  const isShown = () => !holder.closest(".away");
  placeListeners.push(() => {
    if (isShown() && Object.entries(read()).some(([key, value]) => String(value ?? "") !== (place[key] ?? ""))) apply();
  });
  holder.remembered = () => { if (isShown()) note(read()); };
  return holder.remembered;
}

/* --- theme ------------------------------------------------------------------------------------------- */
const themeListeners = [];
const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : systemDark.matches;
}
function themeChanged() {
  const button = document.getElementById("theme");
  button.setAttribute("aria-label", isDark() ? "Show in light colours" : "Show in dark colours");
  button.textContent = isDark() ? "☀ Light" : "☾ Dark";
  for (const listener of themeListeners) listener();
}
document.getElementById("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  note({ theme: document.documentElement.dataset.theme });
  themeChanged();
});
systemDark.addEventListener("change", themeChanged);
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/* --- numbers of the drawings (tables and charts carry their text) --------------------------------------- */
function formatNs(ns, step = Infinity) { // with as many digits as a time that is a step away has others
  const steps = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const size = Number(Math.abs(ns).toPrecision(3));
  const [factor, unit] = steps.filter(([f]) => size >= f).pop() || steps[0];
  const value = ns / factor;
  if (unit === "ns") return Math.round(value) + " ns";
  const whole = Math.floor(Math.abs(Number(value.toPrecision(3)))).toString().length;
  const finer = Math.ceil(Math.log10(factor / step));
  if (finer > 3 - whole) return value.toFixed(finer) + " " + unit;
  return Number(value.toPrecision(3)).toFixed(Math.max(3 - whole, 0)) + " " + unit;
}
const formatCount = (n) => n.toLocaleString("en-US");
const formatShare = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(1) + " %" : "–");

/* --- the layer bar: what is selected, and its kernels ---------------------------------------------------- */
const layerBar = document.getElementById("layer-bar");
// what is known of a layer stands in the tables of layers
const layerTables = ["a02", "a11", "a13"].map((id) => DATA.tables[id]).filter(Boolean);
const layerRow = new Map((DATA.tables.a02?.layer || []).map((index, row) => [index, row]));
const layerOrder = [...layerRow.keys()].sort((a, b) => a - b);
const layerNames = (DATA.tables.a02?.columns || []).find((column) => column.key === "layer_name");
const layerName = (index, kind) => textOf(layerNames[kind][layerRow.get(index)]);

function nameNode(short, full) {
  const node = el("span", { class: "name", text: short });
  if (full && full !== short) node.title = full.slice(0, 1500);
  return node;
}

function showLayerBar(index) {
  layerBar.replaceChildren();
  const row = layerRow.get(index);
  layerBar.hidden = row === undefined;
  document.body.classList.toggle("has-layer", row !== undefined);
  if (row === undefined) return;
  const step = (delta) => {
    const other = layerOrder[layerOrder.indexOf(index) + delta];
    return el("button", {
      type: "button", text: delta < 0 ? "‹" : "›", disabled: other === undefined,
      "aria-label": delta < 0 ? "Previous layer" : "Next layer", onclick: () => report.select(other),
    });
  };
  const facts = el("dl"), said = new Set(["layer_index", "layer_name", "layer_path"]);
  for (const table of layerTables) {
    const at = table.layer.indexOf(index);
    for (const column of at < 0 ? [] : table.columns) {
      const text = column.name ? textOf(column.short[at]) : column.text[at];
      if (said.has(column.key) || text === "" || text === "–") continue;
      said.add(column.key);
      facts.append(el("div", {}, el("dt", { text: column.title }), el("dd", { text })));
    }
  }
  layerBar.append(
    el("div", { class: "layer-head" },
      el("strong", { text: `Layer ${index}` }), nameNode(layerName(index, "short"), layerName(index, "full")),
      el("span", { class: "buttons" }, step(-1), step(1),
        el("button", { type: "button", text: "✕", "aria-label": "Clear the selection", onclick: () => report.select(-1) }))),
    facts);
}
report.onLayer(showLayerBar);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && report.layer >= 0 && !event.defaultPrevented) report.select(-1);
});
for (const button of document.querySelectorAll("[data-select-layer]")) {
  button.addEventListener("click", () => report.select(Number(button.dataset.selectLayer)));
}
report.onLayer((index) => {
  for (const node of document.querySelectorAll("[data-layer]")) {
    node.classList.toggle("selected", index >= 0 && Number(node.dataset.layer) === index);
  }
});

const picker = document.getElementById("layer-picker");
if (picker && layerOrder.length) {
  picker.append(...layerOrder.map((index) => el("option", { value: index, text: `${index} · ${layerName(index, "short")}` })));
  picker.addEventListener("change", () => {
    if (Number(picker.value) !== report.layer) report.select(Number(picker.value));
  });
  report.onLayer((index) => { picker.value = String(index); });
  picker.closest("label").hidden = false;
}

/* --- long texts on demand --------------------------------------------------------------------------------- */
function longText(short, full) {
  const holder = el("span", { class: "long" }, nameNode(short, full));
  if (full && full !== short) {
    const more = el("button", { type: "button", class: "more", text: "…", "aria-label": "Show the full text", "aria-expanded": "false" });
    more.addEventListener("click", (event) => {
      event.stopPropagation();
      const open = more.getAttribute("aria-expanded") === "true";
      more.setAttribute("aria-expanded", String(!open));
      holder.firstChild.textContent = open ? short : full;
      holder.classList.toggle("open", !open);
    });
    holder.append(more);
  }
  return holder;
}

async function copyText(content, button) {
  const label = button.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(content);
  } catch {
    const area = el("textarea", { class: "offscreen" });
    area.value = content;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  button.textContent = done ? "Copied" : "Copying was refused";
  setTimeout(() => { button.textContent = label; }, 1600);
}
