/* Part 3: Vega-Lite charts, drawn when they come near the screen, in the colours of the theme. The expression
   interpreter (`ast`) is used, so that the page needs no right to evaluate text as code. */
const views = new Map(); // chart id -> {view, holder, alternative}

function rowsOf(columns) {
  const names = Object.keys(columns);
  const length = names.length ? columns[names[0]].length : 0;
  const rows = new Array(length);
  for (let i = 0; i < length; i++) {
    const row = {};
    for (const name of names) row[name] = columns[name][i];
    rows[i] = row;
  }
  return rows;
}
const datasets = new Map();
function dataset(name) {
  if (!datasets.has(name)) {
    const stored = DATA.datasets[name];
    const columns = {};
    for (const [key, column] of Object.entries(stored)) columns[key] = column.s ? column.s.map(textOf) : column.v;
    datasets.set(name, rowsOf(columns));
  }
  return datasets.get(name);
}
function recolored(value) {
  if (typeof value === "string") return DATA.dark[value] || value;
  if (Array.isArray(value)) return value.map(recolored);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, recolored(v)]));
  return value;
}
// on a narrow screen labels and legends may not take the room of the bars, whatever the chart allows on a wide one
const NARROW = { labelLimit: 120, columns: 1 };
// both ends of a name tell something: an axis cuts it in the middle
const MIDDLE = "length(datum.label) > 19 ? slice(datum.label, 0, 8) + '…' + slice(datum.label, -10) : datum.label";
function withShortLabels(value) {
  if (Array.isArray(value)) return value.map(withShortLabels);
  if (!value || typeof value !== "object") return value;
  const short = Object.entries(value).map(([key, v]) => [key, key in NARROW && typeof v === "number" ? Math.min(v, NARROW[key]) : withShortLabels(v)]);
  for (const [key, v] of short) if (key === "axis" && v?.labelLimit && !v.labelExpr) v.labelExpr = MIDDLE;
  return Object.fromEntries(short);
}

async function drawChart(holder, alternative) {
  const chart = DATA.charts[holder.dataset.chart];
  const choice = alternative ?? views.get(holder.dataset.chart)?.alternative ?? 0;
  const dark = isDark();
  const source = chart.specs[choice].spec;
  const target = holder.querySelector(".vega");
  const narrow = target.clientWidth < 520;
  const wide = dark ? recolored(source) : structuredClone(source);
  const spec = narrow ? withShortLabels(wide) : wide;
  spec.datasets = {};
  for (const name of chart.specs[choice].datasets) spec.datasets[name] = dataset(name).map((row) => ({ ...row }));
  if (chart.fluid) spec.width = "container";
  if (spec.height > 200 && window.innerWidth >= 760) spec.height = Math.max(Math.min(spec.height, window.innerHeight - 560), 200);
  // a saved picture says what it shows, and of which capture
  const label = (holder.querySelector("h3") || holder.querySelector("figcaption")).textContent;
  spec.title = { text: label, subtitle: document.querySelector("h1").textContent, subtitleColor: ink("muted"), limit: target.clientWidth - 60 };
  const previous = views.get(holder.dataset.chart);
  if (previous) previous.finalize();
  const config = { ...(dark ? DATA.config.dark : DATA.config.light) };
  if (narrow) {
    config.legend = { ...config.legend, columns: 2, labelLimit: 130, labelFontSize: 11 };
    config.axis = { ...config.axis, labelLimit: 120, titleLimit: 250, labelFontSize: 10.5 };
  }
  const result = await vegaEmbed(target, spec, {
    mode: "vega-lite", ast: true, renderer: chart.canvas ? "canvas" : "svg", config,
    actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
    downloadFileName: chart.file, tooltip: { theme: dark ? "dark" : "light" },
  });
  target.querySelector("details > summary")?.setAttribute("aria-label", "Save the chart " + label);
  target.querySelector("svg.marks, canvas.marks")?.setAttribute("aria-label", label);
  target.querySelector("svg.marks, canvas.marks")?.setAttribute("role", "img");
  views.set(holder.dataset.chart, { view: result.view, holder, alternative: choice, finalize: () => result.finalize() });
  result.view.addEventListener("click", (event, item) => {
    const datum = item && item.datum;
    const index = datum && Number(datum.layer_index);
    if (Number.isFinite(index) && layerRow.has(index)) report.select(index);
  });
  paintSelection(result.view);
  holder.classList.add("drawn");
  for (const button of holder.querySelectorAll(".alternatives button")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.alternative) === choice));
  }
  return result.view;
}
function paintSelection(view) {
  try {
    view.signal("selected_layer", report.layer).runAsync();
  } catch { /* this chart has no layers to highlight */ }
}
// on a busy machine a browser has no idle time for minutes: half a second is waited for it
const whenIdle = (step) => (window.requestIdleCallback || setTimeout)(step, { timeout: 500 });
// what is on the screen answers at once, the rest when there is time
report.onLayer((index) => {
  const later = [];
  for (const { view, holder } of views.values()) {
    const box = holder.getBoundingClientRect();
    if (box.bottom > 0 && box.top < window.innerHeight) paintSelection(view);
    else later.push(view);
  }
  const paintNext = () => {
    if (report.layer !== index || !later.length) return;
    paintSelection(later.shift());
    whenIdle(paintNext);
  };
  whenIdle(paintNext);
});

const chartHolders = [...document.querySelectorAll("[data-chart]")];
const pending = new Map();
function ensureChart(holder) {
  if (!pending.has(holder)) pending.set(holder, drawChart(holder).catch((error) => report.errors.push(`${holder.dataset.chart}: ${error}`)));
  return pending.get(holder);
}
for (const holder of chartHolders) {
  const buttons = [...holder.querySelectorAll(".alternatives button")];
  if (!buttons.length) continue;
  const formOf = () => buttons.findIndex((button) => button.getAttribute("aria-pressed") === "true");
  const draw = (form) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === form)));
    pending.set(holder, drawChart(holder, form).catch((error) => report.errors.push(String(error))));
  };
  const written = remember(holder, () => ({ form: formOf() || null }), () => draw(Number(place.form || 0)));
  buttons.forEach((button, form) => button.addEventListener("click", () => { draw(form); written(); }));
}
if ("IntersectionObserver" in window) {
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); ensureChart(entry.target); }
  }, { rootMargin: "700px 0px" });
  for (const holder of chartHolders) near.observe(holder);
} else chartHolders.forEach(ensureChart);
themeListeners.push(() => {
  for (const holder of chartHolders) if (pending.has(holder)) pending.set(holder, drawChart(holder));
});
report.views = views;
report.renderAll = async () => { await Promise.all(chartHolders.map(ensureChart)); await Promise.all(pending.values()); };
window.addEventListener("beforeprint", () => { report.renderAll(); });
window.addEventListener("load", async () => {
  // draw the rest while nobody waits, so that printing and jumping find them ready
  for (const holder of chartHolders) {
    await new Promise((resolve) => (window.requestIdleCallback || setTimeout)(resolve, { timeout: 3000 }));
    await ensureChart(holder);
  }
});
