// Asks the service every few seconds and puts what it says on the page. Asks nothing while nobody looks.

const EVERY = { status: 3000, series: 3000, impressions: 3000, rest: 10000 }; // milliseconds; after an action at once
const COMPARED = 6; // lines in a chart
const share = (value) => percent.format(value);
const CHARTS = [
  { field: "ndcg", title: "NDCG", help: "How good the lists are, 1 is perfect. Known here because the demo knows what its shoppers want.",
    format: decimal.format, least: 0.1, large: true, whole: true, optional: true },
  { field: "clicks", title: "Clicks per list", help: "Of the lists that have their feedback.", format: decimal.format, least: 0.1,
    large: true },
  { field: "reciprocal_rank", title: "Reciprocal rank of clicks", help: "1 ÷ position of the first click: 1 if it is the top one.",
    format: decimal.format, least: 0.1, large: true },
  { field: "explored", title: "Explored", help: "Positions that hold another item than it believes best.", format: share, least: 0.05, zero: true },
  { field: "uncertain", title: "Uncertain pairs", help: "Pairs whose order it is not sure of.", format: share, least: 0.05, zero: true,
    optional: true },
  { field: "lag", title: "Learner lag", help: "Lists with feedback that wait to be learned.", format: whole.format, least: 10, zero: true },
  { field: "fallbacks", title: "Fallbacks", help: "Lists in your order for want of an answer.", format: share, least: 0.01, zero: true },
];

const NOTHING = { lists: null, weights: null, movement: null, catalogue: null, versions: [], experiments: [], held: false };
const state = { rankers: null, service: null, series: new Map(), ...NOTHING }; // the last ones are the chosen ranker's
const view = { name: null, charts: [], parts: {} };

const selected = () => {
  const wanted = decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  return state.rankers?.find((one) => one.name === wanted) ?? opening();
};

// What the page opens with: of those that learn the one that has seen most, as long as it is there.
function opening() {
  if (!state.rankers?.length) return null;
  const kept = state.rankers.find((one) => one.name === view.opening);
  if (kept) return kept;
  const learn = state.rankers.filter((one) => !FIXED.includes(one.spec.learner));
  const [most] = (learn.length ? learn : state.rankers).toSorted((a, b) => b.outcomes - a.outcomes);
  view.opening = most.name;
  return most;
}

// The chosen ranker and the first others, each with a colour that stays its own.
function compared() {
  const chosen = selected();
  const others = state.rankers.filter((one) => one !== chosen).slice(0, COMPARED - 1);
  return state.rankers.filter((one) => one === chosen || others.includes(one));
}

// Where curves begin: not before there was anything, so that a new ranker's are not a sliver at the edge.
function beginning(series) {
  const first = Math.min(...[...state.series.values()].flatMap((one) => one.points.slice(0, 1).map((point) => point.start)));
  return Math.max(series.since, Math.min(first, series.now - 90));
}

const colour = (name) => state.rankers.findIndex((one) => one.name === name) % COMPARED;

// -- asking -------------------------------------------------------------------------------------------------------

const range = () => Number($$("range").value);

async function fetchStatus() { state.rankers = await call("GET", "/v1/rankers"); }

async function fetchSeries() {
  const names = compared().map((one) => one.name);
  const found = await Promise.all(names.map((name) => call("GET", rankerPath(name, `/series?seconds=${range()}`))));
  state.series = new Map(found.map((series) => [series.ranker, series]));
}

async function fetchImpressions() {
  if (!state.held) state.lists = await call("GET", rankerPath(selected().name, "/impressions?limit=6"));
}

async function fetchRest() {
  const { name } = selected();
  const get = (what) => call("GET", rankerPath(name, what));
  [state.weights, state.movement, state.versions, state.experiments] = await Promise.all(
    [get("/weights"), get("/movement"), get("/versions"), get("/experiments")]);
  if (view.partial) return;
  try {
    state.service = await call("GET", "/v1/service");
    const { catalogue } = selected().spec;
    const known = catalogue === null ? [] : await call("GET", "/v1/catalogues");
    state.catalogue = catalogue === null ? null : known.find((one) => one.name === catalogue) ?? { name: catalogue };
  } catch (error) {
    if (!(error instanceof Refused && error.status === 403)) throw error;
    view.partial = true; // the key is for some rankers only, and this is about all
  }
}

const jobs = [[fetchStatus, EVERY.status], [fetchSeries, EVERY.series], [fetchImpressions, EVERY.impressions], [fetchRest, EVERY.rest]];
const due = new Map();
let busy = null;

// Everything that is due, in this order; status first, because the others need a ranker.
async function rounds(force) {
  let news = false;
  try {
    for (const [job, every] of jobs) {
      if (!force && (due.get(job) ?? 0) > Date.now()) continue;
      if (job !== fetchStatus && !selected()) break;
      await job();
      due.set(job, Date.now() + (job === fetchSeries ? Math.max(every, range()) : every) - 50);
      news = true;
    }
    if (!news) return;
    pulse(null);
    draw();
  } catch (error) {
    pulse(error);
  }
}

// One round at a time. A forced one waits for the one under way, whose answers may be older than what was just done.
async function round(force = false) {
  if (busy && !force) return;
  while (busy) await busy;
  busy = rounds(force);
  await busy;
  busy = null;
}

async function refresh() {
  due.clear();
  if (document.activeElement?.matches("select, input:not([type=radio])")) document.activeElement.blur(); // it was just used
  await round(true);
}

async function loop() {
  if (!document.hidden) await round();
  setTimeout(loop, view.failed ? 3000 : 500);
}

// -- drawing ------------------------------------------------------------------------------------------------------

function pulse(error) {
  const locked = error instanceof Refused && (error.status === 401 || error.status === 403);
  view.failed = error !== null;
  $$("pulse").className = `pulse ${error ? "off" : "on"}`;
  const text = error === null ? "live" : locked ? "locked" : "no answer";
  if ($$("pulse").textContent !== text) $$("pulse").textContent = text;
  $$("notice").hidden = error === null || locked;
  if (locked) showKeyForm(error);
  else if (error !== null) {
    const away = !(error instanceof Refused);
    const words = away ? `The service at ${location.host} does not answer (${error.message}). Is it running? Trying again every few seconds.`
      : `The service says: ${error.message}`;
    if ($$("notice").textContent !== words) $$("notice").textContent = words;
  }
}

function showKeyForm(error) {
  if (view.name === "key") return;
  view.name = "key";
  const submit = (event) => {
    event.preventDefault();
    adminKey.set(event.target.elements.key.value.trim());
    view.name = null;
    $$("main").replaceChildren(h("p", { class: "empty" }, "Asking the service …"));
    refresh();
  };
  const wrong = error.status === 403 || adminKey.get();
  adminKey.drop();
  $$("rankers").replaceChildren();
  $$("main").setAttribute("aria-busy", "false");
  $$("main").replaceChildren(h("section", { class: "card key" }, h("h1", {}, "This service asks for a key"),
    h("p", {}, "Give one with the scope ", h("code", {}, "admin"), ", or ", h("code", {}, "read"), " to look only. ",
      h("code", {}, "rankloop keys create me --scopes admin"),
      " makes one where the service runs."),
    wrong && h("p", { class: "warning", role: "alert" }, error.message),
    h("form", { onsubmit: submit }, h("label", {}, "Key", h("input", { name: "key", type: "password", autocomplete: "off", required: true })),
      h("button", { type: "submit" }, "Open")),
    h("p", { class: "help" }, "It stays in this tab and goes when the tab is closed.")));
}

function draw() {
  $$("main").setAttribute("aria-busy", "false");
  const chosen = selected();
  drawNav(chosen);
  if (chosen === null) return drawEmpty();
  if (view.name !== `ranker ${chosen.name}`) build(chosen);
  drawRanker(chosen);
  return undefined;
}

function drawEmpty() {
  if (view.name === "empty") return;
  view.name = "empty";
  const line = `curl -X PUT ${location.origin}/v1/rankers/shop -H 'Content-Type: application/json' \\\n`
    + "  -d '{\"features\": [\"text_match\", \"popularity\", \"price\"], \"exposure\": \"shadow\"}'";
  $$("main").replaceChildren(h("section", { class: "card" }, h("h1", {}, "No ranker yet"),
    h("p", {}, "Make one, then send it your candidates and your users’ clicks:"), h("pre", { tabindex: "0" }, line),
    h("p", {}, h("a", { href: "/docs" }, "The API"), " tells the rest. To see one learn right away: ", h("code", {}, "rankloop demo"), ".")));
}

const FIXED = ["base", "random"]; // learners that never learn

function stateOf(one) {
  if (FIXED.includes(one.spec.learner)) return ["", "fixed"];
  if (!one.ready) return ["idle", "warming up"];
  if (one.demoted) return ["bad", "demoted"];
  if (!one.learning) return ["idle", "paused"];
  if (one.learner_process === null) return ["bad", "nobody learns"];
  return ["good", "learning"];
}

const doing = (one) => doingWords(one, state.series.get(one.name)?.points);

function drawNav(chosen) {
  const summary = state.rankers.map((one) => [one.name, one.spec.learner, one.spec.exposure, stateOf(one), doing(one), state.series.get(one.name)?.points]);
  renew($$("rankers"), [summary, chosen?.name], () => [h("h2", { class: "unseen" }, "Rankers"), h("ul", {}, state.rankers.map((one) => {
    const [kind, word] = stateOf(one);
    const series = state.series.get(one.name);
    const field = series?.points.some((point) => point.ndcg !== undefined) ? "ndcg" : "clicks";
    return h("li", {}, h("a", { href: `#/${encodeURIComponent(one.name)}`, "aria-current": one === chosen ? "page" : null },
      h("span", { class: "who" }, h("i", { class: `swatch back-${colour(one.name)}` }), h("b", {}, one.name)),
      series && sparkline(series.points, field, colour(one.name), beginning(series), series.now),
      h("span", { class: "what" }, h("span", { class: `state ${kind}` }, word), ` · ${one.spec.learner} · ${one.spec.exposure}`)),
      h("p", { class: "doing" }, doing(one)));
  }))]);
}

function build(chosen) {
  view.name = `ranker ${chosen.name}`;
  $$("rankers").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  document.title = `${chosen.name} · rankloop`;
  view.charts = CHARTS.map((chart) => Object.assign(new LineChart(chart), { optional: chart.optional }));
  CHARTS.forEach((chart, i) => view.charts[i].element.classList.toggle("whole", Boolean(chart.whole)));
  const part = (name, title, help, wide) => {
    view.parts[name] = h("div", { class: "part" });
    return h("section", { class: wide ? "card wide" : "card", "aria-label": title }, h("header", {}, h("h2", {}, title)),
      help && h("p", { class: "help" }, help), view.parts[name]);
  };
  const head = { title: h("h1", {}, chosen.name), doing: h("p", { class: "doing" }), text: h("p", { class: "lead" }), moved: h("p", { class: "help moved" }),
    more: h("div", { class: "help more" }), controls: h("div", { class: "controls" }), demoted: h("div", {}), warming: h("div", {}) };
  view.head = head;
  const lists = part("lists", "Latest lists", "What was shown, what was tried in it and why. Stands still while you point at it.", true);
  lists.addEventListener("pointerenter", () => { state.held = true; });
  lists.addEventListener("pointerleave", () => { state.held = false; });
  $$("main").replaceChildren(
    h("div", { class: "head" }, h("div", {}, head.title, head.doing, head.text, head.moved, head.more), head.controls), head.warming, head.demoted,
    h("h2", { class: "unseen" }, "Curves"), h("div", { class: "charts" }, view.charts.map((chart) => chart.element)),
    h("div", { class: "pair" }, part("positions", "Clicks by position", "Share of lists in which the position was clicked."),
      part("weights", "Weights", "What a feature adds to the score, and how sure the ranker is. Pale: it might as well be 0.")),
    lists,
    part("proofs", "Proof", "Which ranking users prefer, on live traffic.", true), part("versions", "Versions", null, true));
}

function drawRanker(chosen) {
  const { head, parts } = view;
  const series = state.series.get(chosen.name);
  const now = series?.now ?? Date.now() / 1000;
  const serves = chosen.serving === "live" ? "serves what it learns" : `serves ${chosen.serving}`;
  const learned = FIXED.includes(chosen.spec.learner) ? "never learns" : `${serves} · ${learnedWords(chosen)}`;
  const lead = `${chosen.spec.learner} · ${learned} · ${many(chosen.open_impressions, "list")} open`;
  if (head.text.textContent !== lead) head.text.textContent = lead;
  if (head.doing.textContent !== doing(chosen)) head.doing.textContent = doing(chosen);
  const moved = FIXED.includes(chosen.spec.learner) || !state.movement ? "" : movementWords(state.movement);
  if (head.moved.textContent !== moved) head.moved.textContent = moved;
  const more = [originWords(chosen), fallbackWords(chosen.fallbacks), catalogueWords(state.catalogue)].filter(Boolean);
  renew(head.more, more, () => more.map((words) => h("p", {}, words)));
  renew(head.warming, chosen.warming, () => (chosen.ready ? null : h("p", { class: "warning calm" }, h("b", {}, "Not ready yet: "), `${chosen.warming}.`)));
  renew($$("store"), state.service, () => (state.service ? storeWords(state.service) : null));
  renew(head.controls, [chosen.etag, chosen.demoted], () => controls(chosen, refresh));
  renew(head.demoted, chosen.demoted ?? null, () => (chosen.demoted ? demotedNotice(chosen) : null));
  if (series) {
    const since = beginning(series);
    const lines = compared().map(({ name }) => ({ name, colour: colour(name), points: state.series.get(name)?.points ?? [] }));
    const markers = state.versions.filter((one) => one.note !== "kept by the clock").map((one) => ({ at: one.created, text: one.note || `v${one.version}` }));
    for (const chart of view.charts) {
      chart.update({ lines: lines.map((line) => ({ ...line })), selected: chosen.name, since, now, step: series.step, markers });
      chart.element.hidden = Boolean(chart.optional) && !chart.chosen.known.length;
    }
    renew(parts.positions, series.positions, () => positionTable(series.positions));
  }
  if (state.weights) renew(parts.weights, state.weights.weights, () => weightTable(state.weights));
  if (state.lists) renew(parts.lists, [state.lists, Math.floor(now / 5)], () => latestLists(chosen.name, state.lists, state.experiments, now));
  const names = state.rankers.map((one) => one.name);
  renew(parts.proofs, [state.experiments, state.versions.length, names, chosen.serving], () => proofs(
    chosen, state.experiments, state.versions, state.rankers,
    (body) => carryOut(() => call("POST", rankerPath(chosen.name, "/experiments"), body), "The experiment has started.", refresh),
    (one) => carryOut(() => call("POST", rankerPath(chosen.name, `/experiments/${one.number}/stop`)), `Experiment ${one.number} has stopped.`, refresh)));
  renew(parts.versions, [state.versions, chosen.etag, chosen.serving, chosen.learning, Math.floor(now / 5)], () => [
    versionTable(chosen, state.versions, now, (action, version) => changeVersion(chosen, action, version, refresh)),
    h("p", { class: "row" }, h("button", { type: "button", class: "plain", onclick: () => carryOut(
      () => orForced((force) => call("POST", rankerPath(chosen.name, "/versions"), { note: "kept by hand", force }), "Keep it anyway"), (kept) => `v${kept.version} is kept.`, refresh) },
    "Keep a version now")),
  ]);
}

function storeWords(found) {
  const free = found.free_disk_bytes === null ? "" : `, ${bytes(found.free_disk_bytes)} free`;
  const low = found.free_disk_bytes !== null && found.free_disk_bytes < 1e9;
  return h("span", { class: low ? "state bad" : null }, ` · store ${bytes(found.store_bytes)}${free}`);
}

// -- the page's own settings, and beginning --------------------------------------------------------------------------

function setTheme(dark) {
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
  $$("theme").textContent = dark ? "Light" : "Dark";
  $$("theme").setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
}

const stored = localStorage.getItem("rankloop-theme");
let dark = stored === null ? matchMedia("(prefers-color-scheme: dark)").matches : stored === "dark";
setTheme(dark);
$$("theme").addEventListener("click", () => {
  dark = !dark;
  localStorage.setItem("rankloop-theme", dark ? "dark" : "light");
  setTheme(dark);
});
$$("range").addEventListener("change", () => { due.clear(); round(true); });
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which ranker is shown
  $$("main").focus();
});
addEventListener("hashchange", () => {
  Object.assign(state, NOTHING);
  due.clear();
  round(true);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) { due.clear(); round(); } });
loop();
