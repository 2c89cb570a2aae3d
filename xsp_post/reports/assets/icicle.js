/* Part 4: the tree as an icicle on a canvas, with zoom, breadcrumbs, search, and the keyboard. */
const ROW = 24;
function fitText(context, text, width) {
  if (width < 14) return "";
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle; else high = middle - 1;
  }
  return low > 4 ? text.slice(0, low) + "…" : "";
}
function sizeCanvas(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "12px " + ink("font");
  context.textBaseline = "middle";
  return [recording ? recording.begin(context, width, height) : context, width];
}
/* The same drawing as SVG: takes the few calls that the drawings use. */
let recording = null;
const xml = (text) => String(text).replace(/[&<>"\u0000-\u001f]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c] || " ");
class SvgRecorder {
  begin(context, width, height) {
    Object.assign(this, { context, width, height, parts: [], patterns: [], points: "", globalAlpha: 1, lineWidth: 1 });
    return this;
  }
  measureText(text) { return this.context.measureText(text); }
  color(style) { return typeof style === "string" ? style : style && style.svg ? this.pattern(style.svg) : "none"; }
  pattern({ color, size }) {
    const key = color + size;
    let number = this.patterns.findIndex((one) => one.key === key);
    if (number < 0) number = this.patterns.push({ key, color, size }) - 1;
    return `url(#hatch${number})`;
  }
  clearRect() {}
  fillRect(x, y, w, h) { this.parts.push(`<rect x="${x.toFixed(2)}" y="${y}" width="${Math.max(w, 0).toFixed(2)}" height="${h}" fill="${xml(this.color(this.fillStyle))}" opacity="${this.globalAlpha}"/>`); }
  strokeRect(x, y, w, h) { this.parts.push(`<rect x="${x.toFixed(2)}" y="${y}" width="${Math.max(w, 0).toFixed(2)}" height="${h}" fill="none" stroke="${xml(this.strokeStyle)}" stroke-width="${this.lineWidth}"/>`); }
  fillText(text, x, y) { if (text) this.parts.push(`<text x="${x.toFixed(2)}" y="${y}" fill="${xml(this.color(this.fillStyle))}" opacity="${this.globalAlpha}" dominant-baseline="central">${xml(text)}</text>`); }
  beginPath() { this.points = ""; }
  moveTo(x, y) { this.points += `M${x.toFixed(2)} ${y.toFixed(2)}`; }
  lineTo(x, y) { this.points += `L${x.toFixed(2)} ${y.toFixed(2)}`; }
  stroke() { this.parts.push(`<path d="${this.points}" fill="none" stroke="${xml(this.strokeStyle)}" stroke-width="${this.lineWidth}" opacity="${this.globalAlpha}"/>`); }
  text() {
    const patterns = this.patterns.map(({ color, size }, n) => `<pattern id="hatch${n}" width="${size}" height="${size}" patternUnits="userSpaceOnUse"><path d="M-1 ${size + 1}L${size + 1} -1" stroke="${xml(color)}" stroke-width="1.2"/></pattern>`).join("");
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height + ROW}" font-family="${xml(ink("font"))}" font-size="12"><defs>${patterns}</defs><rect width="100%" height="100%" fill="${ink("paper")}"/><text x="4" y="${ROW / 2}" fill="${ink("text")}" dominant-baseline="central">${xml(document.title)}</text><g transform="translate(0 ${ROW})">${this.parts.join("")}</g></svg>`;
  }
}
function svgOf(draw) {
  recording = new SvgRecorder();
  try { draw(); return recording.text(); } finally { recording = null; draw(); }
}
/* A copy of a canvas below the title of the page: which capture it is of. */
function titled(canvas) {
  const ratio = window.devicePixelRatio || 1, copy = el("canvas", { width: canvas.width, height: canvas.height + Math.round(ROW * ratio) });
  const context = copy.getContext("2d");
  context.fillStyle = ink("paper");
  context.fillRect(0, 0, copy.width, copy.height);
  context.drawImage(canvas, 0, copy.height - canvas.height);
  context.scale(ratio, ratio);
  context.font = "12px " + ink("font");
  context.textBaseline = "middle";
  context.fillStyle = ink("text");
  context.fillText(document.title, 4, ROW / 2);
  return copy;
}
function exportButtons(canvas, draw, file) {
  const save = (blob, ending) => {
    const link = el("a", { href: URL.createObjectURL(blob), download: `xsp-${file}.${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  return el("span", { class: "switch", role: "group", "aria-label": "Save the drawing" },
    el("button", { type: "button", text: "SVG", "data-save": "svg", title: "Save this drawing as SVG", onclick: () => save(new Blob([svgOf(draw)], { type: "image/svg+xml" }), "svg") }),
    el("button", { type: "button", text: "PNG", "data-save": "png", title: "Save this drawing as PNG", onclick: () => titled(canvas).toBlob((blob) => save(blob, "png")) }));
}
function hatchPattern(context, color, size) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const c = tile.getContext("2d");
  c.strokeStyle = color;
  c.lineWidth = 1.2;
  c.beginPath();
  c.moveTo(-1, size + 1);
  c.lineTo(size + 1, -1);
  c.stroke();
  const pattern = recording ? {} : context.createPattern(tile, "repeat");
  pattern.svg = { color, size };
  return pattern;
}
const tip = document.getElementById("tip");
function showTip(x, y, title, lines) {
  tip.replaceChildren(el("strong", { text: title.length > 600 ? title.slice(0, 600) + "…" : title }), ...lines.map((line) => el("div", { text: line })));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(x + 14, window.innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > window.innerHeight ? Math.max(8, y - box.height - 12) : y + 18) + "px";
}
const hideTip = () => { tip.hidden = true; };
/* A drawing follows the selected layer, the theme and its own size. */
function drawnAnew(canvas, draw) {
  report.onLayer(draw);
  themeListeners.push(draw);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas);
}

const LEVEL_INK = { CAPTURE: "level-0", APPLICATION: "level-0", MODEL: "level-1", MODULE: "level-2", LAYER: "level-3", OPERATION: "level-4", LIBRARY: "level-5", KERNEL: "level-6", FOLDED: "level-0" };
const levelWord = (level) => (level === "FOLDED" ? "folded" : level.toLowerCase());

function buildIcicle(holder, data) {
  const count = data.parent.length;
  const children = Array.from({ length: count }, () => []);
  const roots = [];
  for (let i = 0; i < count; i++) (data.parent[i] >= 0 ? children[data.parent[i]] : roots).push(i);
  const name = (i) => textOf(data.name[i]);
  const full = (i) => textOf(data.full_name[i]);
  const hasDevice = roots.some((i) => data.device_ns[i] > 0);
  const state = { by: hasDevice ? "device_ns" : "host_ns", focus: -1, cursor: roots[0], words: "", hits: null };
  const weight = (i) => data[state.by][i];
  const sumOf = (list, column = state.by) => list.reduce((sum, i) => sum + data[column][i], 0);

  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "tree", "aria-label": "The tree as an icicle. Arrow keys move, Enter zooms in, Escape zooms out." });
  const crumbs = el("nav", { class: "crumbs", "aria-label": "Path" });
  const status = el("span", { class: "status", "aria-live": "polite" });
  const search = el("input", { type: "search", placeholder: "Search ranges and kernels…", "aria-label": "Search in the tree", oninput: () => { find(search.value); draw(); written(); } });
  const sides = el("span", { class: "switch", role: "group", "aria-label": "What width means" });
  for (const [key, label] of [["device_ns", "Device time"], ["host_ns", "Host time"]]) {
    sides.append(el("button", { type: "button", text: label, "data-by": key, disabled: key === "device_ns" && !hasDevice, onclick: () => { state.by = key; find(state.words); draw(); written(); } }));
  }
  const legend = el("span", { class: "legend" });
  const said = el("div", { class: "said", "aria-live": "polite" });
  holder.append(el("div", { class: "table-tools" }, sides, search, status, exportButtons(canvas, () => draw(), "tree")), crumbs, el("div", { class: "pane" }, canvas), said, legend);
  const present = new Set(data.level);
  for (const level of ["MODEL", "MODULE", "LAYER", "OPERATION", "LIBRARY", "KERNEL"]) {
    if (present.has(level)) legend.append(el("span", {}, el("i", { style: `background: var(--${LEVEL_INK[level]})` }), levelWord(level)));
  }
  if (data.is_inferred.some(Boolean)) legend.append(el("span", {}, el("i", { class: "inferred" }), "inferred, not recorded"));
  let boxes = [];
  const shaded = new Uint8Array(count); // every other sibling, so that neighbours can be distinguished

  function find(words) {
    state.words = words;
    const wanted = words.toLowerCase().trim();
    state.hits = null;
    status.textContent = "";
    if (!wanted) return;
    state.hits = new Set();
    let sum = 0;
    const inside = new Uint8Array(count);
    for (let i = 0; i < count; i++) {
      const hit = full(i).toLowerCase().includes(wanted);
      if (hit) state.hits.add(i);
      const above = data.parent[i] >= 0 && inside[data.parent[i]];
      if (hit && !above) sum += weight(i);
      inside[i] = hit || above ? 1 : 0;
    }
    status.textContent = `${formatCount(state.hits.size)} found, ${formatNs(sum)} = ${formatShare(sum, sumOf(roots))} of the ${state.by === "device_ns" ? "device" : "host"} time`;
  }
  function ancestors(i) {
    const path = [];
    for (let at = i; at >= 0; at = data.parent[at]) path.unshift(at);
    return path;
  }
  function layout(width) {
    boxes = [];
    const place = (i, x, w, depth) => {
      boxes.push({ i, x, w, depth });
      placeAll(children[i], x, w / Math.max(weight(i), sumOf(children[i]), 1), depth + 1);
    };
    const placeAll = (list, x, scale, depth) => {
      let odd = false;
      for (const i of list) {
        const w = weight(i) * scale;
        if (w >= 0.4) {
          shaded[i] = odd ? 1 : 0;
          odd = !odd && depth > 0;
          place(i, x, w, depth);
        }
        x += w;
      }
    };
    if (state.focus < 0) placeAll(roots, 0, width / Math.max(sumOf(roots), 1), 0);
    else {
      const path = ancestors(state.focus);
      path.slice(0, -1).forEach((i, depth) => boxes.push({ i, x: 0, w: width, depth, above: true }));
      place(state.focus, 0, width, path.length - 1);
    }
  }
  function describe(i) {
    const lines = [`${levelWord(data.level[i])} · ${formatCount(data.call_count[i])} ${data.level[i] === "KERNEL" ? "executions" : data.level[i] === "FOLDED" ? "paths" : "calls"}`];
    if (data.device_ns[i] > 0) lines.push(`device time ${formatNs(data.device_ns[i])} (${formatShare(data.device_ns[i], sumOf(roots, "device_ns"))}), ${formatCount(data.kernel_count[i])} kernels`);
    if (data.level[i] !== "KERNEL") {
      if (data.host_ns[i] > 0) lines.push(`host time ${formatNs(data.host_ns[i])}`);
      if (data.busy_ns[i] > 0) lines.push(`device busy ${formatNs(data.busy_ns[i])}`);
    }
    if (data.is_inferred[i]) lines.push("inferred from repeating kernels, not recorded");
    if (data.layer_index[i] >= 0) lines.push(`layer ${data.layer_index[i]}`);
    return lines;
  }
  function draw() {
    const width = canvas.clientWidth;
    if (!width) return;
    layout(width);
    const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0) + 1;
    const [context] = sizeCanvas(canvas, depth * ROW + 2);
    context.clearRect(0, 0, width, depth * ROW + 2);
    const hatch = hatchPattern(context, ink("inferred"), 8);
    const paint = {};
    const inkOf = (name) => (paint[name] ??= ink(name));
    const selected = ink("selected"), strong = ink("text");
    for (const { i, x, w, depth: row, above } of boxes) {
      const dim = state.hits && !state.hits.has(i);
      context.globalAlpha = dim ? 0.22 : above ? 0.6 : 1;
      context.fillStyle = inkOf(LEVEL_INK[data.level[i]] || "level-0");
      const inner = Math.max(w - 1, 0.6);
      context.fillRect(x, row * ROW + 1, inner, ROW - 2);
      if (shaded[i] && !dim) {
        context.globalAlpha = 0.3;
        context.fillStyle = inkOf("paper");
        context.fillRect(x, row * ROW + 1, inner, ROW - 2);
        context.globalAlpha = above ? 0.6 : 1;
      }
      if (data.is_inferred[i]) {
        const alpha = context.globalAlpha;
        context.globalAlpha = alpha * 0.45;
        context.fillStyle = hatch;
        context.fillRect(x, row * ROW + 1, inner, ROW - 2);
        context.globalAlpha = alpha;
      }
      if (report.layer >= 0 && data.layer_index[i] === report.layer) {
        context.globalAlpha = 1;
        context.strokeStyle = selected;
        context.lineWidth = 2.5;
        context.strokeRect(x + 1.25, row * ROW + 2.25, Math.max(inner - 2.5, 0.5), ROW - 4.5);
      }
      if (w > 26) {
        context.fillStyle = inkOf((LEVEL_INK[data.level[i]] || "level-0") + "-ink");
        context.fillText(fitText(context, name(i), w - 10), x + 5, row * ROW + ROW / 2 + 0.5);
      }
      if (i === state.cursor && document.activeElement === canvas) {
        context.globalAlpha = 1;
        context.strokeStyle = strong;
        context.lineWidth = 2;
        context.strokeRect(x + 1, row * ROW + 2, Math.max(inner - 2, 1), ROW - 4);
      }
    }
    context.globalAlpha = 1;
    for (const button of sides.children) button.setAttribute("aria-pressed", String(button.dataset.by === state.by));
  }
  // not part of draw(): a crumb that is pressed takes the focus from the canvas, which is drawn again then
  function drawCrumbs() {
    crumbs.replaceChildren();
    const path = state.focus < 0 ? [] : ancestors(state.focus);
    const crumb = (label, title, target) => el("button", { type: "button", text: label, title, "aria-current": target === state.focus ? "true" : null, onclick: () => zoom(target) });
    crumbs.append(crumb("all", "The whole capture", -1));
    for (const i of path) crumbs.append(el("span", { text: "›", "aria-hidden": "true" }), crumb(name(i).slice(0, 48), full(i).slice(0, 600), i));
  }
  function zoom(i) {
    state.focus = i;
    if (i >= 0) state.cursor = i;
    drawCrumbs();
    draw();
    written();
  }
  const firstBy = state.by;
  const written = remember(holder, () => ({ node: state.focus >= 0 ? state.focus : null, by: state.by === firstBy ? null : state.by, search: state.words || null }), () => {
    state.by = place.by || firstBy;
    find((search.value = place.search || ""));
    state.focus = place.node in children ? Number(place.node) : -1;
    drawCrumbs();
    draw();
  });
  function at(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, row = Math.floor((event.clientY - box.top) / ROW);
    for (let k = boxes.length - 1; k >= 0; k--) {
      const b = boxes[k];
      if (b.depth === row && x >= b.x && x < b.x + Math.max(b.w, 1)) return b.i;
    }
    return -1;
  }
  canvas.addEventListener("mousemove", (event) => {
    const i = at(event);
    canvas.style.cursor = i >= 0 ? "pointer" : "default";
    if (i >= 0) showTip(event.clientX, event.clientY, full(i), describe(i)); else hideTip();
  });
  canvas.addEventListener("mouseleave", hideTip);
  canvas.addEventListener("click", (event) => {
    const i = at(event);
    if (i < 0) return;
    state.cursor = i;
    if (data.layer_index[i] >= 0 && data.layer_index[i] !== report.layer) report.select(data.layer_index[i]);
    zoom(i === state.focus ? data.parent[i] : children[i].length ? i : state.focus);
    say();
  });
  function say() { said.textContent = state.cursor >= 0 ? [name(state.cursor), ...describe(state.cursor)].join(" · ") : ""; }
  canvas.addEventListener("keydown", (event) => {
    const parent = data.parent[state.cursor];
    const siblings = (parent >= 0 ? children[parent] : roots).filter((i) => weight(i) > 0);
    const place = siblings.indexOf(state.cursor);
    const heaviest = (list) => list.reduce((best, i) => (best < 0 || weight(i) > weight(best) ? i : best), -1);
    let to = -1;
    if (event.key === "ArrowRight") to = siblings[place + 1] ?? -1;
    else if (event.key === "ArrowLeft") to = siblings[place - 1] ?? -1;
    else if (event.key === "ArrowUp") to = parent;
    else if (event.key === "ArrowDown") to = heaviest(children[state.cursor]);
    else if (event.key === "Enter") {
      zoom(state.cursor);
      if (data.layer_index[state.cursor] >= 0 && report.layer !== data.layer_index[state.cursor]) report.select(data.layer_index[state.cursor]);
    } else if (event.key === "Escape" && state.focus >= 0) zoom(data.parent[state.focus]);
    else return;
    event.preventDefault();
    if (to >= 0) state.cursor = to;
    draw();
    say();
  });
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", draw);
  drawnAnew(canvas, draw);
  report.icicle = { state, zoom, find: (words) => { search.value = words; find(words); draw(); }, boxes: () => boxes, status };
  drawCrumbs();
  draw();
}
for (const holder of document.querySelectorAll('[data-drawing="icicle"]')) buildIcicle(holder, DATA.drawings[holder.dataset.id]);
