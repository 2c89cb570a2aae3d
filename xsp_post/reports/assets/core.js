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
  themeChanged();
});
systemDark.addEventListener("change", themeChanged);
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/* --- numbers of the drawings (tables and charts carry their text) --------------------------------------- */
function formatNs(ns) {
  const steps = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
  const size = Number(Math.abs(ns).toPrecision(3));
  const [factor, unit] = steps.filter(([f]) => size >= f).pop() || steps[0];
  const value = ns / factor;
  if (unit === "ns") return Math.round(value) + " ns";
  const whole = Math.floor(Math.abs(Number(value.toPrecision(3)))).toString().length;
  return Number(value.toPrecision(3)).toFixed(Math.max(3 - whole, 0)) + " " + unit;
}
const formatCount = (n) => n.toLocaleString("en-US");
const formatShare = (part, whole) => (whole > 0 ? ((100 * part) / whole).toFixed(1) + " %" : "–");

/* --- the layer bar: what is selected, and its kernels ---------------------------------------------------- */
const layerBar = document.getElementById("layer-bar");
const layers = DATA.layers || { layer_index: [] };
const layerRow = new Map(layers.layer_index.map((index, row) => [index, row]));

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
    const other = layers.layer_index[row + delta];
    return el("button", {
      type: "button", text: delta < 0 ? "‹" : "›", disabled: other === undefined,
      "aria-label": delta < 0 ? "Previous layer" : "Next layer", onclick: () => report.select(other),
    });
  };
  const facts = el("dl");
  for (const [title, values] of layers.facts) {
    if (values[row] === "" || values[row] === "–") continue;
    facts.append(el("div", {}, el("dt", { text: title }), el("dd", { text: values[row] })));
  }
  const kernels = el("ol", { class: "layer-kernels" });
  for (const [short, full, time] of layers.kernels[row] || []) {
    kernels.append(el("li", {}, nameNode(textOf(short), textOf(full)), el("span", { class: "num", text: time })));
  }
  layerBar.append(
    el("div", { class: "layer-head" },
      el("strong", { text: `Layer ${index}` }), nameNode(textOf(layers.name[row]), textOf(layers.full_name[row])),
      el("span", { class: "buttons" }, step(-1), step(1),
        el("button", { type: "button", text: "✕", "aria-label": "Clear the selection", onclick: () => report.select(-1) }))),
    facts, kernels);
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
if (picker && layers.layer_index.length) {
  layers.layer_index.forEach((index, row) => {
    picker.append(el("option", { value: index, text: `${index} · ${textOf(layers.name[row])}` }));
  });
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
