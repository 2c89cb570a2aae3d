/* Part 3: one part of the page at a time. Every state has an address. */
const parts = [...document.querySelectorAll("main > [id]")];
const tocLinks = [...document.querySelectorAll("#toc a")];
const numberAt = (key) => (place[key] === undefined ? NaN : Number(place[key]));

function addressOf(changes) {
  const { part, ...rest } = { ...place, ...changes };
  const pairs = Object.entries(rest).filter(([, value]) => value !== undefined && value !== null);
  return "#" + [part, ...pairs.map(([key, value]) => `${key}=${encodeURIComponent(value)}`)].join("&");
}
/* What a listener has done itself is only written down; null takes a key away. */
function note(changes) {
  Object.assign(place, changes);
  history.replaceState(null, "", addressOf({}));
}
function show(node, isShown) {
  node.classList.toggle("away", !isShown);
}
function goTo(address) {
  const [id, ...pairs] = address.replace(/^#/, "").split("&");
  const target = document.getElementById(id) || parts.find((one) => tocLinks.some((link) => link.hash === "#" + one.id && link.textContent.toLowerCase() === id));
  const part = parts.find((one) => one === target || (target && one.contains(target))) || parts[0];
  for (const key of Object.keys(place)) delete place[key];
  place.part = part.id;
  for (const pair of pairs) {
    const [key, value = ""] = pair.split("=");
    try { place[key] = decodeURIComponent(value); } catch { /* not an address of ours */ }
  }
  if (target && target !== part) place.show = id;
  for (const one of parts) show(one, one === part);
  if (part.scrollHeight > part.clientHeight) part.tabIndex = 0; else part.removeAttribute("tabindex"); // keys scroll it
  for (const link of tocLinks) {
    const isMine = link.hash === "#" + part.id || Boolean(link.parentElement.querySelector(`ul a[href="#${part.id}"]`));
    if (isMine) link.setAttribute("aria-current", link.parentElement.querySelector("ul") ? "true" : "page");
    else link.removeAttribute("aria-current");
  }
  const wanted = (place.show || "").split(",");
  for (const { blocks, choose } of choosers.get(part)) choose(blocks.find((block) => wanted.includes(block.id)) || blocks[0]);
  const open = (place.open || "").split(".");
  detailsOf(part).forEach((one, i) => { one.open = initiallyOpen.has(one) !== open.includes(String(i)); });
  if ((place.theme || "") !== (document.documentElement.dataset.theme || "")) {
    if (place.theme) document.documentElement.dataset.theme = place.theme; else delete document.documentElement.dataset.theme;
    themeChanged();
  }
  const layer = numberAt("layer");
  if (Number.isFinite(layer) && layer !== report.layer) report.select(layer);
  for (const listener of placeListeners) listener();
}
/* Of several charts of a part one is on the screen, and of several tables. */
const choosers = new Map(parts.map((part) => [part, []]));
for (const part of parts) {
  for (const [kind, ofBlock] of [["chart", { form: null }], ["table", { sort: null, search: null, all: null }]]) {
    const blocks = [...part.querySelectorAll(`:scope > [data-${kind}]`)];
    if (blocks.length < 2) continue;
    const titleOf = (block) => block.querySelector("h3")?.textContent || DATA.tables[block.dataset.table].caption.split(/[,;:]/)[0];
    const buttons = blocks.map((block) => el("button", { type: "button", text: titleOf(block), "data-show": block.id, onclick: () => press(block) }));
    const choices = el("div", { class: "switch blocks", role: "group", "aria-label": kind === "chart" ? "Charts" : "Tables" }, ...buttons);
    const choose = (chosen) => {
      const pressed = buttons.indexOf(document.activeElement);
      blocks.forEach((block, i) => { show(block, block === chosen); buttons[i].setAttribute("aria-pressed", String(block === chosen)); });
      if (kind === "table") chosen.firstChild.prepend(choices);
      buttons[pressed]?.focus();
    };
    const press = (chosen) => {
      choose(chosen);
      note({ ...ofBlock, show: [...part.querySelectorAll(":scope > [data-chart]:not(.away), :scope > [data-table]:not(.away)")]
        .filter((block) => choosers.get(part).some(({ blocks: [first, ...others] }) => others.includes(block))).map((block) => block.id).join(",") || null });
      chosen.remembered?.();
    };
    choosers.get(part).push({ blocks, choose });
    blocks[0].before(choices);
    choose(blocks[0]);
  }
}
const detailsOf = (part) => [...part.querySelectorAll("details")].filter((one) => !one.closest(".vega"));
const initiallyOpen = new Set([...document.querySelectorAll("main details[open]")]);
let printing = false;
document.addEventListener("toggle", () => {
  const part = parts.find((one) => one.id === place.part);
  const changed = detailsOf(part).flatMap((one, i) => (one.open !== initiallyOpen.has(one) ? [i] : []));
  if (!printing && changed.join(".") !== (place.open || "")) note({ open: changed.join(".") || null });
}, true);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const kept = ["layer", "theme"].filter((key) => place[key]).map((key) => `&${key}=${place[key]}`);
  history.pushState(null, "", link.hash + kept.join(""));
  goTo(location.hash);
  window.scrollTo(0, 0);
});
window.addEventListener("popstate", () => goTo(location.hash));
report.onLayer((index) => note({ layer: index >= 0 ? index : null }));
report.place = place;
report.go = (address) => { history.pushState(null, "", address); goTo(address); };
window.addEventListener("beforeprint", () => { printing = true; for (const one of document.querySelectorAll("main details")) one.open = true; });
window.addEventListener("afterprint", () => {
  for (const one of document.querySelectorAll("main details")) one.open = initiallyOpen.has(one);
  goTo(location.hash);
  setTimeout(() => { printing = false; });
});
document.body.classList.add("views");
