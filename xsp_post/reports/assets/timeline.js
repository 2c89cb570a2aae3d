/* Part 6: the timeline of the recording on a canvas. Executions that are shown in full can be zoomed to single kernels;
   elsewhere a block stands for several events, and its shade says how busy it is. */
// Groups of causes of idle time: colour, size of the pattern (0: plain), words.
const IDLE_INK = {
  host: ["other", 5, "host"], launch: ["launch", 0, "launch"], synchronization: ["latency", 9, "synchronisation"],
  copy: ["memory", 7, "copy call"], communication: ["write", 6, "other ranks"], profiler: ["muted", 4, "profiler"],
  unknown: ["unknown", 12, "not known"],
};
const hatchStyle = (color, size) => `border: 1px solid var(--${color}); background: repeating-linear-gradient(135deg, var(--${color}) 0 1.5px, ${size ? "transparent" : `var(--${color})`} 1.5px ${size || 3}px)`;
function buildTimeline(holder, data) {
  const length = Math.max(data.length_ns, 1);
  const LANE = 18, HEAD = 18, AXIS = 24;
  const lanes = data.lanes; // {label, group, rows}
  const count = data.start_ns.length;
  const byLane = lanes.map(() => []);
  for (let i = 0; i < count; i++) byLane[data.lane[i]].push(i);
  for (const list of byLane) list.sort((a, b) => data.start_ns[a] - data.start_ns[b]);
  let y = AXIS;
  for (const lane of lanes) { lane.y = y + HEAD; y = lane.y + lane.rows * LANE + 4; }
  const height = y;
  const view = { from: 0, to: length };
  const state = { words: "", hits: [], hit: -1, hover: -1, drag: null };

  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "Timeline. Plus and minus zoom, left and right arrow keys move, n goes to the next hit of the search, 0 shows everything." });
  const status = el("span", { class: "status", "aria-live": "polite" });
  const button = (label, title, action) => el("button", { type: "button", text: label, title, "aria-label": title, onclick: action });
  const search = el("input", { type: "search", placeholder: "Search kernels and ranges…", "aria-label": "Search in the timeline", oninput: () => { find(search.value); written(); } });
  search.addEventListener("keydown", (event) => { if (event.key === "Enter") next(); });
  holder.append(el("div", { class: "table-tools" },
    el("span", { class: "switch" }, button("All", "All: show everything", () => goTime(0, length)),
      ...data.windows.filter((one) => one.start_ns > 0 || one.end_ns < length).map((one) => button(one.title[0].toUpperCase() + one.title.split(" ")[0].slice(1), `Zoom to the ${one.title}`, () => goTime(one.start_ns, one.end_ns)))),
    el("span", { class: "switch" }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("‹", "Earlier", () => move(-0.3)), button("›", "Later", () => move(0.3))),
    search, button("Next", "Next hit of the search", () => next()), status, exportButtons(canvas, () => draw(), "timeline")), el("div", { class: "pane" }, canvas));
  const present = new Set(data.kind);
  const legend = [["layer", "level-3"], ["kernel", "level-6"], ["launch call", "launch"], ["copy, set or graph", "memory"]];
  holder.append(el("div", { class: "legend" }, ...legend.map(([word, look]) => el("span", {}, el("i", { style: `background: var(--${look})` }), word)),
    ...Object.entries(IDLE_INK).filter(([group]) => present.has("IDLE-" + group)).map(([, [color, size, word]]) => el("span", {}, el("i", { style: hatchStyle(color, size) }), "waits: " + word)),
    el("span", { text: "line: launch → execution (queue delay)" })));

  const px = (ns, width) => ((ns - view.from) / (view.to - view.from)) * width;
  const inkOf = (text, kind = text.replace("PATH-", "")) => (kind === "LAUNCH" ? "launch" : kind === "MEMORY" ? "memory" : LEVEL_INK[kind] || "level-0");
  function draw() {
    if (!canvas.clientWidth) return;
    const [context, width] = sizeCanvas(canvas, height);
    const patterns = {};
    const waits = (group) => {
      const [color, size] = IDLE_INK[group] || IDLE_INK.unknown;
      return (patterns[group] ??= size ? hatchPattern(context, ink(color), size) : ink(color));
    };
    const inferred = hatchPattern(context, ink("inferred"), 8);
    const colors = {};
    const paint = (key) => (colors[key] ??= ink(key));
    context.clearRect(0, 0, width, height);
    drawAxis(context, width, paint);
    lanes.forEach((lane, l) => {
      context.fillStyle = paint("muted");
      context.fillText(lane.label, 2, lane.y - HEAD / 2 + 1);
      for (const i of byLane[l]) {
        if (data.start_ns[i] > view.to) break;
        if (data.end_ns[i] < view.from) continue;
        const x0 = Math.max(px(data.start_ns[i], width), -2);
        const w = Math.max(Math.min(px(data.end_ns[i], width), width + 2) - x0, 0.7);
        const top = lane.y + data.sub[i] * LANE;
        const kind = data.kind[i], idle = kind.startsWith("IDLE-") ? kind.slice(5) : "";
        const busy = data.event_count[i] > 1 ? 0.2 + 0.7 * Math.min(data.busy_ns[i] / Math.max(data.end_ns[i] - data.start_ns[i], 1), 1) : 1;
        const shade = state.words && !state.hits.includes(i) ? 0.25 * busy : busy;
        context.globalAlpha = shade;
        context.fillStyle = idle ? waits(idle) : paint(inkOf(kind));
        context.fillRect(x0, top, Math.max(w - (w > 4 ? 0.8 : 0), 0.7), LANE - 2);
        if (idle) {
          context.fillStyle = paint((IDLE_INK[idle] || IDLE_INK.unknown)[0]);
          context.fillRect(x0, top + LANE - 5, w, 3);
        }
        if (data.is_inferred[i] && w > 2) {
          context.globalAlpha = 0.4;
          context.fillStyle = inferred;
          context.fillRect(x0, top, w, LANE - 2);
        }
        context.globalAlpha = 1;
        if (report.layer >= 0 && data.layer_index[i] === report.layer) {
          context.fillStyle = paint("selected");
          context.fillRect(x0, top + LANE - 5, Math.max(w, 1.5), 3);
        }
        if (w > 30 && kind !== "LAUNCH" && shade > 0.3) {
          const fits = fitText(context, textOf(data.name[i]), w - 8);
          const label = data.event_count[i] > 1 && fits.endsWith("…") ? "" : fits; // of a sum half a name says nothing
          if (idle && label) {
            context.fillStyle = paint("paper");
            context.fillRect(x0 + 2, top + 2, Math.min(context.measureText(label).width + 4, w - 4), LANE - 8);
          }
          context.fillStyle = idle ? paint("muted") : paint(inkOf(kind) + "-ink");
          context.fillText(label, x0 + 4, top + LANE / 2 - 0.5);
        }
      }
    });
    drawQueueDelays(context, width, paint);
    const span = view.to - view.from;
    const where = span >= length ? `${formatNs(length)} in all` : `${formatNs(Math.round(view.from), span)} … ${formatNs(Math.round(view.to), span)} (${formatNs(Math.round(span))} of ${formatNs(length)})`;
    status.textContent = state.words ? `${formatCount(state.hits.length)} found · ${where}` : where;
  }
  function drawAxis(context, width, paint) {
    for (const one of data.windows) {
      context.fillStyle = paint("band");
      context.fillRect(px(one.start_ns, width), 0, Math.max(px(one.end_ns, width) - px(one.start_ns, width), 1), height);
    }
    const rough = (view.to - view.from) / Math.max(width / 110, 2);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) || rough;
    context.strokeStyle = paint("line");
    context.fillStyle = paint("muted");
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = px(t, width);
      context.beginPath(); context.moveTo(x + 0.5, AXIS - 6); context.lineTo(x + 0.5, height); context.stroke();
      const label = formatNs(Math.round(t), step);
      if (x + 3 + context.measureText(label).width < width) context.fillText(label, x + 3, 10);
    }
  }
  function drawQueueDelays(context, width, paint) {
    const linked = state.hover >= 0 ? [state.hover] : [];
    if (report.layer >= 0) for (let i = 0; i < count && linked.length < 60; i++) if (data.layer_index[i] === report.layer && data.launch_start_ns[i] >= 0) linked.push(i);
    context.strokeStyle = paint("selected");
    context.lineWidth = 1.3;
    for (const i of linked) {
      const from = lanes[data.launch_lane[i]];
      if (data.launch_start_ns[i] < 0 || !from) continue;
      context.beginPath();
      context.moveTo(px(data.launch_start_ns[i], width), from.y + LANE - 3);
      context.lineTo(px(data.start_ns[i], width), lanes[data.lane[i]].y);
      context.stroke();
    }
  }
  /* The ends are moved into the recording, and written into the address once it is quiet. */
  let writing = 0;
  function goTime(from, to) {
    const span = Math.min(Math.max(to - from, 200), length);
    view.from = Math.min(Math.max(from, 0), length - span);
    view.to = view.from + span;
    draw();
    clearTimeout(writing);
    writing = setTimeout(written, 200);
  }
  function zoom(factor, at = 0.5) {
    const span = view.to - view.from, wanted = Math.min(Math.max(span * factor, 200), length);
    const from = view.from + (span - wanted) * at;
    goTime(from, from + wanted);
  }
  function move(share) {
    const span = view.to - view.from;
    goTime(view.from + span * share, view.to + span * share);
  }
  function find(words) {
    state.words = words.toLowerCase().trim();
    state.hit = -1;
    state.hits = state.words ? [...data.full_name.keys()].filter((i) => textOf(data.full_name[i]).toLowerCase().includes(state.words)) : [];
    draw();
  }
  function next() {
    if (!state.hits.length) return;
    const i = state.hits[(state.hit = (state.hit + 1) % state.hits.length)];
    const span = Math.max(20 * (data.end_ns[i] - data.start_ns[i]), 1000);
    goTime(data.start_ns[i] - span / 2, data.start_ns[i] + span / 2);
  }
  function at(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, mouseY = event.clientY - box.top;
    const l = lanes.findIndex((lane) => mouseY >= lane.y && mouseY < lane.y + lane.rows * LANE);
    if (l < 0) return -1;
    const sub = Math.floor((mouseY - lanes[l].y) / LANE), width = canvas.clientWidth;
    let best = -1, distance = 4;
    for (const i of byLane[l]) {
      if (data.sub[i] !== sub) continue;
      const x0 = px(data.start_ns[i], width), x1 = px(data.end_ns[i], width);
      const away = x < x0 ? x0 - x : x > x1 ? x - x1 : 0;
      if (away < distance) { best = i; distance = away; }
    }
    return best;
  }
  function tipFor(event, i) {
    const kind = data.kind[i].toLowerCase().replace("idle-", "waits: ").replace("path-", "critical path: ");
    const lines = [`${kind} · ${formatNs(data.end_ns[i] - data.start_ns[i])}, from ${formatNs(data.start_ns[i])}`];
    if (data.event_count[i] > 1) lines.push(`together ${formatNs(data.busy_ns[i])}`);
    if (data.queue_delay_ns[i] >= 0) lines.push(`queue delay ${formatNs(data.queue_delay_ns[i])} (launch → execution)`);
    if (data.layer_index[i] >= 0) lines.push(`layer ${data.layer_index[i]}`);
    showTip(event.clientX, event.clientY, textOf(data.full_name[i]), lines);
  }
  canvas.addEventListener("mousemove", (event) => {
    if (state.drag) {
      const span = view.to - view.from, from = state.drag.from - ((event.clientX - state.drag.x) / canvas.clientWidth) * span;
      state.drag.moved ||= Math.abs(event.clientX - state.drag.x) > 4;
      goTime(from, from + span);
      return;
    }
    const i = at(event);
    canvas.style.cursor = i >= 0 ? "pointer" : "grab";
    if (i >= 0) tipFor(event, i); else hideTip();
    if (i !== state.hover) { state.hover = i; draw(); }
  });
  canvas.addEventListener("mouseleave", () => { hideTip(); if (state.hover >= 0) { state.hover = -1; draw(); } });
  canvas.addEventListener("mousedown", (event) => { state.drag = { x: event.clientX, from: view.from, moved: false }; });
  window.addEventListener("mouseup", (event) => {
    const drag = state.drag;
    state.drag = null;
    if (!drag || drag.moved || event.target !== canvas) return;
    const i = at(event);
    if (i >= 0 && data.layer_index[i] >= 0) report.select(data.layer_index[i]);
  });
  const shareOf = (event) => (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth;
  canvas.addEventListener("dblclick", (event) => zoom(0.4, shareOf(event)));
  canvas.addEventListener("wheel", (event) => {
    if (event.shiftKey) return; // scrolls the page
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, shareOf(event));
  }, { passive: false });
  const keys = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.7), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), 0: () => goTime(0, length), n: next };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  const written = remember(holder, () => {
    const isAll = view.to - view.from >= length;
    return { search: state.words || null, from: isAll ? null : Math.round(view.from), to: isAll ? null : Math.round(view.to) };
  }, () => {
    find((search.value = place.search || ""));
    goTime(numberAt("from") || 0, numberAt("to") || length);
  });
  drawnAnew(canvas, draw);
  report.timeline = { view, zoom, draw, count, find, state, lanes };
  draw();
}
for (const holder of document.querySelectorAll('[data-drawing="timeline"]')) buildTimeline(holder, DATA.drawings[holder.dataset.id]);
themeChanged();
goTo(location.hash);
