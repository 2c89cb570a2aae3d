/* Part 5: the timeline of one iteration on a canvas: threads with their ranges, launches, streams. Idle stretches of
   a stream are hatched; hovering or selecting a kernel draws the line from its launch (the queue delay). */
// Groups of causes of idle time: colour, size of the pattern (0: plain), words.
const IDLE_INK = {
  host: ["other", 5, "host"], launch: ["launch", 0, "launch"], synchronization: ["latency", 9, "synchronisation"],
  copy: ["memory", 7, "copy call"], communication: ["write", 6, "other ranks"], profiler: ["muted", 4, "profiler"],
  unknown: ["unknown", 12, "not known"],
};
function buildTimeline(holder, data) {
  const length = Math.max(data.length_ns, 1);
  const LANE = 18, HEAD = 20, AXIS = 24;
  const lanes = data.lanes; // {label, group, rows}
  const count = data.start_ns.length;
  const byLane = lanes.map(() => []);
  for (let i = 0; i < count; i++) byLane[data.lane[i]].push(i);
  for (const list of byLane) list.sort((a, b) => data.start_ns[a] - data.start_ns[b]);
  let y = AXIS;
  for (const lane of lanes) { lane.y = y + HEAD; y = lane.y + lane.rows * LANE + 6; }
  const height = y;
  const view = { from: 0, to: length };
  const gapTotals = lanes.map((lane, l) => {
    if (lane.group !== "streams") return null;
    let last = null, sum = 0, longest = [0, 0, 0];
    for (const i of byLane[l]) {
      if (last !== null && data.start_ns[i] > last) {
        const gap = data.start_ns[i] - last;
        sum += gap;
        if (gap > longest[0]) longest = [gap, last, data.start_ns[i]];
      }
      last = Math.max(last ?? 0, data.end_ns[i]);
    }
    return { sum, longest };
  });

  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "Timeline. Plus and minus zoom, left and right arrow keys move, 0 shows everything." });
  const status = el("span", { class: "status", "aria-live": "polite" });
  const button = (label, title, action) => el("button", { type: "button", text: label, title, "aria-label": title, onclick: action });
  const tools = el("div", { class: "table-tools" },
    el("span", { class: "switch" }, button("+", "Zoom in", () => zoom(0.5)), button("−", "Zoom out", () => zoom(2)), button("‹", "Earlier", () => move(-0.3)), button("›", "Later", () => move(0.3)), button("All", "All: show everything", () => { view.from = 0; view.to = length; draw(); })),
    status);
  const longest = gapTotals.reduce((best, gap) => (gap && gap.longest[0] > (best ? best.longest[0] : 0) ? gap : best), null);
  if (longest) {
    tools.append(el("button", { type: "button", text: `Longest gap: ${formatNs(longest.longest[0])}`, onclick: () => {
      const [gap, from, to] = longest.longest;
      view.from = Math.max(0, from - gap); view.to = Math.min(length, to + gap); draw();
    } }));
  }
  tools.append(exportButtons(canvas, () => draw(), "timeline"));
  holder.append(tools, canvas, el("div", { class: "legend" },
    el("span", {}, el("i", { class: "level-3" }), "layer"), el("span", {}, el("i", { class: "level-6" }), "kernel"),
    el("span", {}, el("i", { class: "launch" }), "launch call"), el("span", {}, el("i", { class: "memory" }), "copy, set or graph"),
    el("span", {}, el("i", { class: "hatch" }), "stream idle"), el("span", { text: "line: launch → execution (queue delay)" })));
  if (lanes.some((lane) => lane.group === "idle")) {
    const present = new Set(data.kind);
    holder.lastChild.append(...Object.entries(IDLE_INK).filter(([group]) => present.has("IDLE-" + group)).map(([group, look]) =>
      el("span", {}, el("i", { class: "idle-" + group }), "waits: " + look[2])));
  }
  let hover = -1, drag = null;

  const px = (ns, width) => ((ns - view.from) / (view.to - view.from)) * width;
  const inkOf = (text, kind = text.replace("PATH-", "")) => (kind === "LAUNCH" ? "launch" : kind === "MEMORY" ? "memory" : LEVEL_INK[kind] || "level-0");
  function draw() {
    if (!canvas.clientWidth) return;
    const [context, width] = sizeCanvas(canvas, height);
    const hatch = hatchPattern(context, ink("gap"), 7);
    const waits = {};
    const wait = (group) => {
      const [color, size] = IDLE_INK[group] || IDLE_INK.unknown;
      return (waits[group] ??= size ? hatchPattern(context, ink(color), size) : ink(color));
    };
    const inferred = hatchPattern(context, ink("inferred"), 8);
    context.clearRect(0, 0, width, height);
    const colors = {};
    const paint = (key) => (colors[key] ??= ink(key));
    // axis
    const span = view.to - view.from;
    const rough = span / Math.max(width / 110, 2);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) || rough;
    context.strokeStyle = paint("line");
    context.fillStyle = paint("muted");
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = px(t, width);
      context.beginPath(); context.moveTo(x + 0.5, AXIS - 6); context.lineTo(x + 0.5, height); context.stroke();
      if (x < width - 46) context.fillText(formatNs(Math.round(t)), x + 3, 10);
    }
    lanes.forEach((lane, l) => {
      context.fillStyle = paint("muted");
      const gap = gapTotals[l];
      context.fillText(lane.label + (gap && gap.sum > 0 ? ` · idle between kernels ${formatNs(gap.sum)}` : ""), 2, lane.y - HEAD / 2 + 1);
      if (lane.group === "streams") {
        let last = null;
        for (const i of byLane[l]) {
          if (last !== null && data.start_ns[i] > last) {
            const x0 = Math.max(px(last, width), 0), x1 = Math.min(px(data.start_ns[i], width), width);
            if (x1 - x0 > 3) {
              context.fillStyle = hatch;
              context.fillRect(x0, lane.y, x1 - x0, LANE - 2);
              if (x1 - x0 > 64) {
                const label = formatNs(data.start_ns[i] - last);
                const w = context.measureText(label).width + 8;
                context.fillStyle = paint("paper");
                context.fillRect((x0 + x1 - w) / 2, lane.y + 1, w, LANE - 4);
                context.fillStyle = paint("muted");
                context.fillText(label, (x0 + x1 - w) / 2 + 4, lane.y + LANE / 2 - 1);
              }
            }
          }
          last = Math.max(last ?? 0, data.end_ns[i]);
        }
      }
      for (const i of byLane[l]) {
        if (data.end_ns[i] < view.from || data.start_ns[i] > view.to) continue;
        const x0 = Math.max(px(data.start_ns[i], width), -2);
        const w = Math.max(Math.min(px(data.end_ns[i], width), width + 2) - x0, 0.7);
        const top = lane.y + data.sub[i] * LANE;
        const kind = data.kind[i];
        context.globalAlpha = data.event_count[i] > 1 ? 0.55 : 1;
        const idle = kind.startsWith("IDLE-") ? kind.slice(5) : "";
        if (idle) {
          context.fillStyle = paint((IDLE_INK[idle] || IDLE_INK.unknown)[0]);
          context.fillRect(x0, top + LANE - 5, Math.max(w, 0.7), 3);
        }
        context.fillStyle = idle ? wait(idle) : paint(inkOf(kind));
        context.fillRect(x0, top, Math.max(w - (w > 4 ? 0.8 : 0), 0.7), LANE - 2);
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
        if (w > 30 && kind !== "LAUNCH") {
          if (idle) {
            context.fillStyle = paint("paper");
            context.fillRect(x0 + 2, top + 2, Math.min(context.measureText(fitText(context, textOf(data.name[i]), w - 8)).width + 4, w - 4), LANE - 8);
          }
          context.fillStyle = idle ? paint("muted") : paint(inkOf(kind) + "-ink");
          context.fillText(fitText(context, textOf(data.name[i]), w - 8), x0 + 4, top + LANE / 2 - 0.5);
        }
      }
    });
    const linked = [];
    if (hover >= 0) linked.push(hover);
    if (report.layer >= 0) for (let i = 0; i < count && linked.length < 60; i++) if (data.layer_index[i] === report.layer && data.launch_start_ns[i] >= 0) linked.push(i);
    context.strokeStyle = paint("selected");
    context.lineWidth = 1.3;
    for (const i of linked) {
      if (data.launch_start_ns[i] < 0) continue;
      const from = lanes.find((lane) => lane.group === "launches");
      if (!from) break;
      const launchLane = lanes[data.launch_lane[i]] || from;
      context.beginPath();
      context.moveTo(px(data.launch_start_ns[i], width), launchLane.y + LANE - 3);
      context.lineTo(px(data.start_ns[i], width), lanes[data.lane[i]].y);
      context.stroke();
    }
    status.textContent = span >= length ? `${formatNs(length)} in all` : `${formatNs(Math.round(view.from))} … ${formatNs(Math.round(view.to))} (${formatNs(Math.round(span))} of ${formatNs(length)})`;
  }
  function zoom(factor, at = 0.5) {
    const span = view.to - view.from;
    const wanted = Math.min(Math.max(span * factor, 200), length);
    const middle = view.from + span * at;
    view.from = Math.min(Math.max(middle - wanted * at, 0), length - wanted);
    view.to = view.from + wanted;
    draw();
  }
  function move(share) {
    const span = view.to - view.from;
    view.from = Math.min(Math.max(view.from + span * share, 0), length - span);
    view.to = view.from + span;
    draw();
  }
  function at(event) {
    const box = canvas.getBoundingClientRect();
    const x = event.clientX - box.left, mouseY = event.clientY - box.top;
    const l = lanes.findIndex((lane) => mouseY >= lane.y && mouseY < lane.y + lane.rows * LANE);
    if (l < 0) return -1;
    const sub = Math.floor((mouseY - lanes[l].y) / LANE);
    const width = canvas.clientWidth;
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
    const lines = [`${data.kind[i].toLowerCase().replace("idle-", "waits: ").replace("path-", "critical path: ")} · ${formatNs(data.end_ns[i] - data.start_ns[i])}, from ${formatNs(data.start_ns[i])}`];
    if (data.queue_delay_ns[i] >= 0) lines.push(`queue delay ${formatNs(data.queue_delay_ns[i])} (launch → execution)`);
    if (data.layer_index[i] >= 0) lines.push(`layer ${data.layer_index[i]}`);
    showTip(event.clientX, event.clientY, textOf(data.full_name[i]), lines);
  }
  canvas.addEventListener("mousemove", (event) => {
    if (drag) {
      const span = view.to - view.from;
      view.from = Math.min(Math.max(drag.from - ((event.clientX - drag.x) / canvas.clientWidth) * span, 0), length - span);
      view.to = view.from + span;
      drag.moved ||= Math.abs(event.clientX - drag.x) > 4;
      draw();
      return;
    }
    const i = at(event);
    canvas.style.cursor = i >= 0 ? "pointer" : "grab";
    if (i >= 0) tipFor(event, i); else hideTip();
    if (i !== hover) { hover = i; draw(); }
  });
  canvas.addEventListener("mouseleave", () => { hideTip(); if (hover >= 0) { hover = -1; draw(); } });
  canvas.addEventListener("mousedown", (event) => { drag = { x: event.clientX, from: view.from, moved: false }; });
  window.addEventListener("mouseup", (event) => {
    if (!drag) return;
    const { moved } = drag;
    drag = null;
    if (moved || event.target !== canvas) return;
    const i = at(event);
    if (i >= 0 && data.layer_index[i] >= 0) report.select(data.layer_index[i]);
  });
  canvas.addEventListener("dblclick", (event) => zoom(0.4, (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // plain wheel scrolls the page
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const actions = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.7), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), 0: () => { view.from = 0; view.to = length; draw(); } };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
  report.onLayer(draw);
  themeListeners.push(draw);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas);
  report.timeline = { view, zoom, draw, count };
  draw();
}
for (const holder of document.querySelectorAll('[data-drawing="timeline"]')) buildTimeline(holder, DATA.drawings[holder.dataset.id]);
themeChanged();
goTo(location.hash);
