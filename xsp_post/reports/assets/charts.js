/* Part 3: Vega-Lite charts, drawn when they come near the screen, in the colours of the theme. The expression
   interpreter (`ast`) is used, so that the page needs no right to evaluate text as code. */
const views = new Map(); // chart id -> {view, holder, alternative}

/* The rows of a data set, new ones each time: Vega writes into them. */
function dataset(name) {
  const columns = Object.entries(DATA.datasets[name]).map(([key, column]) => [key, column.s ? column.s.map(textOf) : column.v]);
  const length = columns.length ? columns[0][1].length : 0;
  return Array.from({ length }, (_, i) => Object.fromEntries(columns.map(([key, values]) => [key, values[i]])));
}
/* A specification with each of its values (numbers, texts) replaced: ``of`` is told the value and its key. */
function replaced(value, of, key = "") {
  if (Array.isArray(value)) return value.map((one) => replaced(one, of));
  if (!value || typeof value !== "object") return of(value, key);
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, replaced(v, of, k)]));
}
// on a narrow screen labels and legends may not take the room of the bars, whatever the chart allows on a wide one
const NARROW = { labelLimit: 120, columns: 1 };
// both ends of a name tell something: an axis cuts it in the middle
const MIDDLE = "length(datum.label) > 19 ? slice(datum.label, 0, 8) + '…' + slice(datum.label, -10) : datum.label";
function withMiddle(value) {
  if (!value || typeof value !== "object") return;
  if (value.axis?.labelLimit && !value.axis.labelExpr) value.axis.labelExpr = MIDDLE;
  Object.values(value).forEach(withMiddle);
}

async function drawChart(holder, alternative) {
  const chart = DATA.charts[holder.dataset.chart];
  const choice = alternative ?? views.get(holder.dataset.chart)?.alternative ?? 0;
  const dark = isDark();
  const source = chart.specs[choice].spec;
  const target = holder.querySelector(".vega");
  const narrow = target.clientWidth < 520;
  const spec = replaced(source, (value, key) => (dark && DATA.dark[value]) || (narrow && key in NARROW && typeof value === "number" ? Math.min(value, NARROW[key]) : value));
  if (narrow) withMiddle(spec);
  spec.datasets = {};
  for (const name of chart.specs[choice].datasets) spec.datasets[name] = dataset(name);
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
const whenIdle = (step, timeout = 500) => (window.requestIdleCallback || setTimeout)(step, { timeout });
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
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); ensureChart(entry.target); }
}, { rootMargin: "700px 0px" });
for (const holder of chartHolders) near.observe(holder);
themeListeners.push(() => {
  for (const holder of chartHolders) if (pending.has(holder)) pending.set(holder, drawChart(holder));
});
report.views = views;
report.renderAll = async () => { await Promise.all(chartHolders.map(ensureChart)); await Promise.all(pending.values()); };
window.addEventListener("beforeprint", () => { report.renderAll(); });
window.addEventListener("load", async () => {
  // draw the rest while nobody waits, so that printing and jumping find them ready
  for (const holder of chartHolders) {
    await new Promise((resolve) => whenIdle(resolve, 3000));
    await ensureChart(holder);
  }
});
