/* Part 2: tables that sort, search, unfold and copy as CSV. */
function csvCell(value) {
  if (typeof value === "number") return String(value);
  if (value === null || value === undefined) return "";
  // a spreadsheet would run a cell that begins like a formula
  const cell = /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
  return /[",\r\n]/.test(cell) ? '"' + cell.replaceAll('"', '""') + '"' : cell;
}

const WIDE = 9; // columns that paper has room for with their heads beside each other
function buildTable(holder, table) {
  const state = { key: null, down: false, words: "", all: false };
  const columns = table.columns;
  const count = table.count;
  const cellText = (column, row) => (column.name ? textOf(column.short[row]) : column.text[row]);
  const fullText = (column, row) => (column.name ? textOf(column.full[row]) : column.text[row]);
  const haystack = Array.from({ length: count }, (_, row) => columns.map((column) => fullText(column, row)).join("\n").toLowerCase());

  const body = el("tbody");
  const heads = columns.map((column) => el("th", { scope: "col", class: column.align === "num" ? "num" : "text", title: column.help || null },
    el("button", { type: "button", text: column.title, onclick: () => sortBy(column) })));
  const search = el("input", { type: "search", placeholder: "Search…", "aria-label": `Search in ${table.caption}`, oninput: () => { state.words = search.value; draw(); written(); } });
  const status = el("span", { class: "status", "aria-live": "polite" });
  const copy = el("button", { type: "button", text: "Copy as CSV", onclick: () => copyText(csv(), copy) });
  const more = el("button", { type: "button", class: "unfold", onclick: () => { state.all = !state.all; draw(); written(); } });
  const tools = el("div", { class: "table-tools" }, el("span", { class: "caption", text: table.caption }), search, copy);
  holder.append(tools,
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.caption },
      el("table", { class: columns.length > WIDE ? "wide" : null }, el("thead", {}, el("tr", {}, ...heads)), body)),
    el("div", { class: "table-foot" }, more, status));

  function order() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...haystack.keys()].filter((row) => words.every((word) => haystack[row].includes(word)));
    if (state.key) {
      const column = state.key;
      const value = column.raw ? (row) => column.raw[row] : (row) => fullText(column, row).toLowerCase();
      const sign = state.down ? -1 : 1;
      rows.sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === null || y === null) return (x === null) - (y === null); // what is not known comes last
        return sign * (x < y ? -1 : x > y ? 1 : 0) || a - b;
      });
    }
    return rows;
  }
  function sortBy(column) {
    state.down = state.key === column ? !state.down : Boolean(column.raw) && column.align === "num";
    state.key = column;
    draw();
    written();
  }
  const written = remember(holder,
    () => ({ sort: state.key && (state.down ? "-" : "") + state.key.key, search: state.words || null, all: state.all ? 1 : null }),
    () => {
      const sort = place.sort || "";
      state.down = sort.startsWith("-");
      state.key = columns.find((column) => column.key === sort.replace("-", "")) || null;
      state.words = search.value = place.search || "";
      state.all = place.all === "1";
      draw();
    });
  function csv() {
    const lines = [columns.map((column) => csvCell(column.key)).join(",")];
    for (const row of order()) lines.push(columns.map((column) => csvCell(column.raw ? column.raw[row] : fullText(column, row))).join(","));
    return lines.join("\n") + "\n";
  }
  function drawRow(row) {
    const layer = table.layer ? table.layer[row] : -1;
    const line = el("tr", { "data-layer": layer >= 0 ? layer : null });
    line.classList.toggle("selected", layer >= 0 && layer === report.layer);
    const opens = (open) => {
      line.tabIndex = 0;
      line.addEventListener("click", () => { if (!String(window.getSelection())) open(); });
      line.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target === line) open(); });
    };
    if (layer >= 0) opens(() => report.select(layer));
    if (table.span && DATA.drawings.timeline) {
      const [from, to] = table.span[row].map((ns) => Math.round(ns - DATA.drawings.timeline.begins_ns));
      opens(() => report.go(`#timeline&from=${from}&to=${to}`));
    }
    for (const column of columns) {
      const cell = el("td", { class: column.align });
      if (column.name) cell.append(longText(cellText(column, row), fullText(column, row)));
      else {
        cell.append(el("span", { text: cellText(column, row) }));
        cell.classList.toggle("short", cellText(column, row).length <= 24);
      }
      if (column.bar) {
        cell.classList.add("bar");
        cell.style.setProperty("--share", String(column.bar[row]));
      }
      if (column.tag) cell.firstChild.classList.add("tag", "tag-" + (/^[a-z_]+$/.test(column.text[row]) ? column.text[row] : "unknown"));
      line.append(cell);
    }
    return line;
  }
  function draw() {
    const rows = order();
    const shown = state.all || rows.length <= table.visible + 2 ? rows : rows.slice(0, table.visible);
    body.replaceChildren(...shown.map(drawRow));
    if (!rows.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "nothing", text: "No row has these words." })));
    heads.forEach((head, i) => {
      if (columns[i] === state.key) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    more.hidden = rows.length <= table.visible + 2;
    more.textContent = state.all ? `Show the first ${table.visible}` : `Show all ${formatCount(rows.length)}`;
    status.textContent = (rows.length === count ? "" : `${formatCount(rows.length)} of ${formatCount(count)} rows match. `) + (table.note || "");
  }
  (report.tables ??= {})[table.id] = table;
  table.csv = csv;
  draw();
}
for (const holder of document.querySelectorAll("[data-table]")) buildTable(holder, DATA.tables[holder.dataset.table]);
