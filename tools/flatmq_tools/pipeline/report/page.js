const data = JSON.parse(document.getElementById("data").textContent);
const devices = data.devices;
const find = (selector, from = document) => from.querySelector(selector);

function make(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Names come from outside: they are texts, and each has its own direction.
const named = (tag, name, properties = {}) =>
  make(tag, { className: "name", title: name, ...properties }, make("bdi", { textContent: name }));

// Numbers and times as people read them

const count = (n) => (n == null ? "–" : n.toLocaleString("en").replaceAll(",", "\u202f"));
const figure = (n, unit) =>
  n == null ? "–" : `${count(Number(n.toPrecision(4)))}${unit ? "\u202f" + unit : ""}`;
const delay = (ms) => (Math.abs(ms) < 10000 || ms == null ? figure(ms, "ms") : figure(ms / 1000, "s"));

function when(seconds, whole = false) {
  const at = new Date(seconds * 1000), last = new Date(data.until * 1000);
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (whole) Object.assign(options, { second: "2-digit", timeZoneName: "short" });
  if (whole || at.toDateString() !== last.toDateString())
    Object.assign(options, { day: "numeric", month: "short" });
  if (whole || at.getFullYear() !== last.getFullYear()) options.year = "numeric";
  return at.toLocaleString("en-GB", options);
}

for (const time of document.querySelectorAll("time")) {
  const seconds = Date.parse(time.dateTime) / 1000;
  time.textContent = when(seconds);
  time.title = when(seconds, true);
}
const span = document.querySelectorAll("header time");
if (span.length > 1) {
  for (const time of span) time.textContent = time.title.replace(/:\d\d (\S+)$/, "");
  const offset = span[1].title.split(" ").pop();
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  find("#zone").textContent = `, times of ${zone}${zone === offset ? "" : ` (${offset})`}`;
}

// Charts

let theme; // Vega's reading of the drawing, in the colours of the day or of the night
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const drawn = new Map();
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting && !drawn.get(target)) draw(target);
}, { rootMargin: "300px" });

addEventListener("beforeprint", () => {
  for (const box of document.querySelectorAll(".drawn")) if (!drawn.get(box)) draw(box);
});

dark.addEventListener("change", () => {
  theme = undefined;
  for (const box of [...drawn.keys()]) redraw(box);
});

function redraw(box) {
  drawn.get(box)?.finalize();
  drawn.delete(box);
  seen.unobserve(box);
  seen.observe(box);
}

/** The card of a chart; it is drawn when it is seen. */
function card(chart) {
  const drawing = make("div", { className: "drawn" });
  const title = `${chart.title}${chart.unit ? `, ${chart.unit}` : ""}`;
  drawing.chart = chart;
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", `${title}, ${chart.note}`);
  const legend = make("div", { className: "legend" });
  const several = chart.lines.length + chart.areas.length + chart.bars.length > 1;
  if (several)
    for (const [name, c, , high] of [...chart.areas, ...chart.lines]) {
      legend.append(entry(name, c));
      if (high) legend.lastChild.firstChild.style.opacity = 0.2 * legend.childElementCount; // as they overlap
    }
  seen.observe(drawing);
  return make("article", { className: "card chart" },
    make("header", {}, named("h3", title), make("small", { textContent: chart.note })), legend, drawing);
}

function entry(name, c, text = "") {
  const swatch = make("span", { className: "swatch" });
  swatch.style.background = `var(--${c})`;
  return make("span", {}, swatch, named("span", name), text);
}

/** The points of a line without those that are missing, and the parts that these leave. */
function parts(chart, line, row) {
  const rows = [];
  let part = 0;
  line.forEach((v, n) => {
    if (v == null) part = n + 1;
    else rows.push({ ...row(v, n), t: 1000 * (chart.at + (n + 0.5) * chart.step), part });
  });
  const sizes = new Map();
  for (const each of rows) sizes.set(each.part, (sizes.get(each.part) ?? 0) + 1);
  return [rows.filter((each) => sizes.get(each.part) > 1), rows.filter((each) => sizes.get(each.part) === 1)];
}

function draw(box) {
  const { chart } = box;
  const rows = { bars: [], areas: [], lines: [], dots: [] };
  let number = 0;
  const bar = (n, v, v2, c, o) => rows.bars.push({
    t: 1000 * (chart.at + n * chart.step), t2: 1000 * (chart.at + (n + 0.9) * chart.step), v, v2, c, o });
  const length = [...chart.bars, ...chart.lines][0][2].length;
  for (const [, c, line] of chart.bars) {
    line.forEach((v, n) => { if (v) bar(n, 0, v, colour(c), 0.85); });
  }
  for (const [, c, lows, highs] of chart.areas) {
    const name = ++number;
    const [together, alone] = parts(chart, highs, (v, n) => ({ v, v2: lows[n], c: colour(c), n }));
    rows.areas.push(...together.map((row) => ({ ...row, part: `${name}/${row.part}` })));
    for (const row of alone) bar(row.n, row.v2, row.v, row.c, 0.2);
  }
  for (const [, c, line] of chart.lines) {
    const name = ++number;
    const [together, alone] = parts(chart, line, (v) => ({
      v: chart.log ? Math.log10(Math.max(v, 10 ** chart.low)) : v, c: colour(c), w: 1.8 }));
    rows.lines.push(...together.map((row) => ({ ...row, part: `${name}/${row.part}` })));
    rows.dots.push(...alone);
  }
  const muted = colour("muted"), quiet = colour("quiet");
  theme ??= vega.parse(data.drawing, { axis: {
    labelColor: muted, gridColor: colour("grid"), domainColor: quiet, tickColor: quiet, labelFontSize: 12,
    labelFont: getComputedStyle(document.body).fontFamily } }, { ast: true });
  const end = chart.at + length * chart.step;
  const view = new vega.View(theme, { renderer: "svg", container: box, hover: false, expr: vega.expressionInterpreter })
    .signal("xlo", 1000 * chart.at).signal("xhi", 1000 * end).signal("ylo", chart.low).signal("yhi", chart.high).signal("log", Number(chart.log));
  for (const [name, of] of Object.entries(rows)) view.data(name, of);
  view.run();
  drawn.set(box, view);
  new ResizeObserver(() => view.width(box.clientWidth).resize().runAsync()).observe(box);
}

/** What is under the pointer: all that the chart has of that time. */
function point(event) {
  const box = event.target.closest?.(".drawn"), view = drawn.get(box);
  for (const tip of document.querySelectorAll(".tip")) if (tip.parentNode !== box || event.type !== "pointermove") {
    drawn.get(tip.parentNode)?.data("cursor", []).runAsync();
    tip.remove();
  }
  if (!view || event.type !== "pointermove") return;
  const { chart } = box, edge = box.getBoundingClientRect();
  const at = view.scale("x").invert(event.clientX - edge.left - view.origin()[0]) / 1000;
  const length = [...chart.bars, ...chart.lines][0][2].length;
  const n = Math.max(0, Math.min(length - 1, Math.floor((at - chart.at) / chart.step)));
  view.data("cursor", [{ t: 1000 * (chart.at + (n + 0.5) * chart.step), c: colour("muted") }]).runAsync();
  const tip = find(".tip", box) ?? box.appendChild(make("div", { className: "tip" }));
  const { unit } = chart;
  tip.replaceChildren(make("b", { textContent: when(chart.at + n * chart.step) }),
    ...chart.areas.map(([name, c, lows, highs]) =>
      entry(name, c, lows[n] == null ? "–" : `${figure(lows[n])} to ${figure(highs[n], unit)}`)),
    ...[...chart.bars, ...chart.lines].map(([name, c, line]) => entry(name, c, figure(line[n], unit))));
  const right = event.clientX - edge.left > edge.width / 2;
  Object.assign(tip.style, right ? { left: "0", right: "" } : { left: "", right: "0" });
}
for (const kind of ["pointermove", "pointerdown", "scroll"]) addEventListener(kind, point, { passive: true });

for (const name of ["fleet", "pipeline"]) find(`#${name} .charts`)?.append(...data[name].map(card));

/** Buttons that turn the pages of something of which `size` are shown. */
function turning(box, page, size, all, turn) {
  if (all <= size) return box.replaceChildren();
  const button = (text, to) => make("button", {
    textContent: text, disabled: to < 0 || to * size >= all, onclick: () => turn(to) });
  const first = page * size, last = Math.min(first + size, all);
  box.replaceChildren(button("‹ Back", page - 1), `${count(first + 1)} to ${count(last)} of ${count(all)}`,
    button("Next ›", page + 1));
}

// Measured values

const values = find("#values");
const VALUES = 12, LINES = 5;
const COLOURS = ["red", "amber", "teal", "violet", "ink"];
const folded = devices.name.map((name) => name.toLowerCase());

function showValues(page = 0) {
  const text = find("input", values).value.trim().toLowerCase();
  const exact = folded.indexOf(text);
  const matching = !text ? [] : exact >= 0 ? [exact]
    : [...folded.keys()].filter((n) => folded[n].includes(text));
  const within = new Set(matching.map((n) => devices.name[n]));
  const having = matching.filter((n) => data.values.some((chart) => chart.curves?.[n])).slice(0, LINES);
  const shown = data.values.filter((chart) => !text || chart.title.toLowerCase().includes(text) ||
    having.some((n) => chart.curves?.[n]) ||
    (!chart.curves && chart.lines.some(([name]) => within.has(name))));
  const cards = shown.slice(page * VALUES, (page + 1) * VALUES).map((chart) => {
    const mine = having.filter((n) => chart.curves?.[n]);
    return card({ ...chart, lines: [...chart.lines,
      ...mine.map((n) => [devices.name[n], COLOURS[having.indexOf(n)], chart.curves[n]])] });
  });
  for (const box of [...drawn.keys()]) if (values.contains(box)) {
    drawn.get(box).finalize();
    drawn.delete(box);
  }
  find(".charts", values).replaceChildren(...cards);
  const without = matching.length && !shown.length ? "this page has no lines of that device" : "";
  find("[role=status]", values).textContent = !text ? ""
    : matching.length > having.length && having.length
      ? `lines of ${having.length} of ${count(matching.length)} devices with such a name`
      : without || (shown.length ? "" : "there is no such value, and no such device");
  turning(find(".pages", values), page, VALUES, shown.length, showValues);
}
if (values) {
  find("input", values).addEventListener("input", () => showValues());
  showValues();
}

// The list of devices

const COLUMNS = [
  { key: "name", head: "Device" },
  { key: "needs", head: "Needs a look", rank: (n) => -devices.needs[n].length },
  { key: "heard", head: "Last heard", text: when },
  { key: "received", head: "Messages", text: count, n: true, more: true },
  { key: "lost", head: "Lost", text: count, n: true },
  { key: "restarts", head: "Restarts", text: count, n: true, more: true },
  { key: "delay", head: "Delay", text: delay, n: true, more: true },
  { key: "status", head: "Its status", more: true },
];
const ROWS = 10;
const list = find("#devices");
const state = { page: 0, kind: null, sort: null, down: false, open: null };

function chosen() {
  const text = find("#find").value.trim().toLowerCase();
  const found = [...folded.keys()].filter((n) => folded[n].includes(text) &&
    (state.kind == null || (state.kind < 0 ? !devices.needs[n].length : devices.needs[n].includes(state.kind))));
  if (!state.sort) return found;
  const of = state.sort.rank ?? ((n) => devices[state.sort.key][n]);
  const sign = state.down ? -1 : 1;
  const order = new Intl.Collator("en", { numeric: true }).compare;
  return found.sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x == null || y == null) return (x == null) - (y == null); // what is not known is last
    return sign * (typeof x === "string" ? order(x, y) : x - y) || a - b;
  });
}

function row(n) {
  const cells = COLUMNS.map(({ key, text, n: number, more }) => {
    const value = devices[key][n];
    const cell = make("td", { className: `${number ? "n" : ""} ${more ? "more" : ""}` });
    if (key === "name") {
      cell.append(named("button", value, { onclick: () => show(state.open === n ? null : n) }));
      cell.firstChild.setAttribute("aria-expanded", state.open === n);
    } else if (key === "needs") {
      cell.append(...value.map((kind) => make("span", { className: "chip", textContent: data.needs[kind][1] })));
    } else cell.append(make("bdi", { textContent: value == null ? "–" : text ? text(value) : value }));
    return cell;
  });
  const made = make("tr", { id: `device-${n}` }, ...cells);
  if (state.open !== n) return [made];
  made.className = "open";
  return [made, make("tr", { className: "details" }, make("td", { colSpan: COLUMNS.length }, ...details(n)))];
}

function details(n) {
  const pairs = [
    ["Device", devices.name[n]], ["Its status", devices.status[n] || "–"],
    ["Last heard", devices.heard[n] == null ? "–" : when(devices.heard[n])],
    ["Messages", count(devices.received[n])], ["Lost", count(devices.lost[n])],
    ["Came again, dropped", count(devices.twice[n])], ["Out of order", count(devices.late[n])],
    ["Restarts", count(devices.restarts[n])],
    ["Delay, median", delay(devices.delay[n])], ["Delay, 99 %", delay(devices.delay99[n])],
  ];
  const made = [make("dl", {}, ...pairs.map(([name, text]) => make("div", {},
    make("dt", { textContent: name }), make("dd", {}, make("bdi", { textContent: text })))))];
  const block = (title, lines) => lines?.length && made.push(make("b", { textContent: title }), make("ul", {}, ...lines));
  block("Newest values", data.newest[n]?.map(([name, value, at]) => make("li", {},
    named("span", name), make("bdi", { textContent: value, title: when(at) }))));
  block("Gaps", data.gaps[n]?.map(([since, until, missing]) => make("li", { textContent:
    `${when(since)} to ${when(until)}: ${missing == null ? "silent" : `${count(missing)} lost`}` })));
  if (data.values.some((chart) => chart.curves?.[n] || chart.lines.some(([name]) => name === devices.name[n])))
    made.push(make("button", { textContent: "Show its measured values", onclick: () => {
      find("input", values).value = devices.name[n];
      showValues();
      values.scrollIntoView();
    } }));
  return made;
}

function showList() {
  const found = chosen();
  state.page = Math.max(0, Math.min(state.page, Math.ceil(found.length / ROWS) - 1));
  find("thead", list).replaceChildren(make("tr", {}, ...COLUMNS.map((column) => {
    const sorted = state.sort === column;
    const cell = make("th", { className: `${column.n ? "n" : ""} ${column.more ? "more" : ""}` },
      make("button", { textContent: column.head + (sorted ? (state.down ? " ↓" : " ↑") : ""), onclick: () => {
        Object.assign(state, { sort: column, down: sorted ? !state.down : Boolean(column.n), page: 0 });
        showList();
      } }));
    if (sorted) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    return cell;
  })));
  find("tbody", list).replaceChildren(...found.slice(state.page * ROWS, (state.page + 1) * ROWS).flatMap(row));
  if (!found.length)
    find("tbody", list).append(make("tr", {}, make("td", { colSpan: COLUMNS.length, textContent: "No device is like that." })));
  turning(find(".pages", list), state.page, ROWS, found.length, (page) => { state.page = page; showList(); });
  const kinds = [[null, "All", devices.name.length], ...data.needs.map(([, title], kind) =>
    [kind, title, devices.needs.filter((all) => all.includes(kind)).length]),
  [-1, "Well", devices.needs.filter((all) => !all.length).length]].filter(([kind, , of]) => kind == null || of);
  find("#kinds").replaceChildren(...(kinds.length < 3 ? [] : kinds.map(([kind, title, of]) => {
    const button = make("button", { textContent: `${title} ${count(of)}`, onclick: () => {
      Object.assign(state, { kind, page: 0 });
      showList();
    } });
    button.setAttribute("aria-pressed", state.kind === kind);
    return button;
  })));
}

/** Open a device in the list, wherever in it that is; null closes what is open. */
function show(n) {
  state.open = n;
  if (n != null && !chosen().includes(n)) {
    find("#find").value = "";
    state.kind = null;
  }
  if (n != null) state.page = Math.floor(chosen().indexOf(n) / ROWS);
  showList();
}

function follow(to) {
  const [, what, which] = to.match(/^#(device|list)-(\w+)$/) ?? [];
  if (what === "device" && which in devices.name) {
    show(Number(which));
    find(`#device-${which}`).scrollIntoView({ block: "center" });
  } else if (what === "list") {
    Object.assign(state, { kind: data.needs.findIndex(([kind]) => kind === which), page: 0, open: null });
    find("#find").value = "";
    showList();
    list.scrollIntoView();
  }
}

if (list) {
  find("#find").addEventListener("input", () => { state.page = 0; showList(); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link) { event.preventDefault(); history.replaceState(null, "", link.hash); follow(link.hash); }
  });
  addEventListener("hashchange", () => follow(location.hash));
  showList();
  follow(location.hash);
}
