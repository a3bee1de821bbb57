// Asks the service every few seconds and draws its answers. Asks nothing while the tab is hidden.

const EVERY = { status: 3000, series: 3000, impressions: 3000, rest: 10000 }; // milliseconds; after an action at once
const COMPARED = 6; // lines in a chart
const share = (value) => percent.format(value);
const CHARTS = [
  { field: "ndcg", title: "NDCG", help: "Quality of the rankings; 1 is perfect. Only the demo knows it, because its shoppers are simulated.",
    format: decimal.format, least: 0.1, large: true, whole: true, optional: true },
  { field: "clicks", title: "Clicks per impression", help: "Of impressions that have feedback.", format: decimal.format, least: 0.1,
    large: true },
  { field: "reciprocal_rank", title: "Reciprocal rank of clicks", help: "1 ÷ position of the first click; 1 if the top item is clicked.",
    format: decimal.format, least: 0.1, large: true },
  { field: "explored", title: "Explored", help: "Positions with an item that was moved in order to learn.", format: share, least: 0.05, zero: true },
  { field: "uncertain", title: "Uncertain pairs", help: "Pairs of items whose order is not certain.", format: share, least: 0.05, zero: true,
    optional: true },
  { field: "unlearned_impressions", title: "Learner lag", help: "Closed impressions that wait to be learned.", format: whole.format, least: 10, zero: true },
  { field: "fallbacks", title: "Fallbacks", help: "Baseline rankings shown instead of learned ones.", format: share, least: 0.01, zero: true },
];

const NOTHING = { lists: null, weights: null, movement: null, catalog: null, versions: [], experiments: [], held: false };
const state = { rankers: null, service: null, key: null, series: new Map(), period: "", ...NOTHING }; // the last ones are the chosen ranker's
const view = { name: null, charts: [], parts: {} };

const selected = () => {
  const wanted = decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  return state.rankers?.find((one) => one.name === wanted) ?? opening();
};

// The ranker that the page opens with: of those that learn the one with the most impressions.
function opening() {
  if (!state.rankers?.length) return null;
  const kept = state.rankers.find((one) => one.name === view.opening);
  if (kept) return kept;
  const learn = state.rankers.filter((one) => !FIXED.includes(one.spec.learner));
  const [most] = (learn.length ? learn : state.rankers).toSorted((a, b) => b.closed_impressions - a.closed_impressions);
  view.opening = most.name;
  return most;
}

// The chosen ranker and the first others. Each keeps its color.
function compared() {
  const chosen = selected();
  const others = state.rankers.filter((one) => one !== chosen).slice(0, COMPARED - 1);
  return state.rankers.filter((one) => one === chosen || others.includes(one));
}

// Where curves begin: not before the first point, so that those of a new ranker are not a sliver at the edge.
function beginning(series) {
  const first = Math.min(...[...state.series.values()].flatMap((one) => one.points.slice(0, 1).map((point) => point.start)));
  return Math.max(series.since, Math.min(first, series.now - 90));
}

const color = (name) => state.rankers.findIndex((one) => one.name === name) % COMPARED;

// -- asking -------------------------------------------------------------------------------------------------------

const range = () => Number($$("range").value);

// Why the key of this page may not change anything; null if it may.
const lockedBy = () => (!state.key || state.key.scopes.includes("admin") ? null
  : `Changes need a key with the scope admin; this key has: ${state.key.scopes.join(", ")}.`);

async function fetchStatus() { state.rankers = await call("GET", "/v1/rankers"); }

async function fetchSeries() {
  const names = compared().map((one) => one.name);
  const asked = `last ${$$("range").selectedOptions[0].textContent}`;
  const found = await Promise.all(names.map((name) => call("GET", rankerPath(name, `/series?seconds=${range()}`))));
  state.series = new Map(found.map((series) => [series.ranker, series]));
  state.period = asked; // of these series, whatever is selected meanwhile
}

async function fetchImpressions() {
  if (!state.held) state.lists = await call("GET", rankerPath(selected().name, "/impressions?limit=6"));
}

async function fetchKey() {
  try {
    state.key = await call("GET", "/v1/keys/self");
  } catch (error) {
    if (!(error instanceof Refused && error.status === 404)) throw error; // a process of the previous release
  }
}

async function fetchRest() {
  const { name } = selected();
  await fetchKey();
  const get = (what) => call("GET", rankerPath(name, what));
  [state.weights, state.movement, state.versions, state.experiments] = await Promise.all(
    [get("/weights"), get("/movement"), get("/versions"), get("/experiments")]);
  if (view.partial) return;
  try {
    state.service = await call("GET", "/v1/service");
    const { catalog } = selected().spec;
    const known = catalog === null ? [] : await call("GET", "/v1/catalogs");
    state.catalog = catalog === null ? null : known.find((one) => one.name === catalog) ?? { name: catalog };
  } catch (error) {
    if (!(error instanceof Refused && error.status === 403)) throw error;
    view.partial = true; // the key is limited to some rankers, and this is about all
  }
}

const jobs = [[fetchStatus, EVERY.status], [fetchSeries, EVERY.series], [fetchImpressions, EVERY.impressions], [fetchRest, EVERY.rest]];
const due = new Map();
let busy = null;

// Every job that is due, in this order. Status comes first, because the others need a ranker.
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

// One round at a time. A forced one waits for the current one, whose answers may be older than the last action.
async function round(force = false) {
  if (busy && !force) return;
  while (busy) await busy;
  busy = rounds(force);
  await busy;
  busy = null;
}

// After an action: draw the controls again by what the service answered (a ranker's status, or nothing), then ask for all.
async function refresh(answer) {
  due.clear();
  if (document.activeElement?.matches("select, input:not([type=radio])")) document.activeElement.blur(); // it was just used
  if (answer?.etag) state.rankers = state.rankers.map((one) => (one.name === answer.name ? answer : one));
  for (const part of [view.head?.controls, view.parts.proofs, view.parts.versions]) delete part?.dataset.shown;
  if (view.name?.startsWith("ranker ")) draw();
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
    h("p", {}, "Enter a key with the scope ", h("code", {}, "admin"), ", or ", h("code", {}, "read"), " for a page without controls. ",
      h("code", {}, "rankloop keys create me --scopes admin"),
      " creates one on the machine of the service."),
    wrong && h("p", { class: "warning", role: "alert" }, error.message),
    h("form", { onsubmit: submit }, h("label", {}, "Key", h("input", { name: "key", type: "password", autocomplete: "off", required: true })),
      h("button", { type: "submit" }, "Open")),
    h("p", { class: "help" }, "The key is stored in this tab until the tab is closed.")));
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
    h("p", {}, "Create one, then send your candidates and the clicks of your users:"), h("pre", { tabindex: "0" }, line),
    h("p", {}, h("a", { href: "/docs" }, "The API"), " describes the calls. To see a ranker learn: ", h("code", {}, "make demo"), ".")));
}

const FIXED = ["base", "random"]; // learners that do not learn

function stateOf(one) {
  if (FIXED.includes(one.spec.learner)) return ["", "fixed"];
  if (one.trouble) return ["bad", "problem"];
  if (needsAction(one)) return ["bad", "rejected events"];
  if (!one.ready) return ["idle", "compiling"];
  if (one.demoted) return ["bad", "demoted"];
  if (!one.learning) return ["idle", "paused"];
  if (one.learner_process === null) return ["bad", "no learner"];
  return ["good", "learning"];
}

const doing = (one) => doingWords(one, state.series.get(one.name), state.period);

function drawNav(chosen) {
  const summary = state.rankers.map((one) => [one.name, one.spec.learner, one.spec.exposure, stateOf(one), doing(one), state.series.get(one.name)?.points]);
  renew($$("rankers"), [summary, chosen?.name], () => [h("h2", { class: "unseen" }, "Rankers"), h("ul", {}, state.rankers.map((one) => {
    const [kind, word] = stateOf(one);
    const series = state.series.get(one.name);
    const field = series?.points.some((point) => point.ndcg !== undefined) ? "ndcg" : "clicks";
    return h("li", {}, h("a", { href: `#/${encodeURIComponent(one.name)}`, "aria-current": one === chosen ? "page" : null },
      h("span", { class: "who" }, h("i", { class: `swatch back-${color(one.name)}` }), h("b", {}, one.name)),
      series && sparkline(series.points, field, color(one.name), beginning(series), series.now),
      h("span", { class: "what" }, h("span", { class: `state ${kind}` }, word), h("span", { class: "more" }, ` · ${one.spec.learner} · ${one.spec.exposure}`)),
      h("span", { class: "doing" }, doing(one))));
  }))]);
}

// Scrolls the list to the chosen ranker. Not with scrollIntoView, which makes the next Tab skip what is above it.
function showCurrent(nav) {
  const [frame, entry] = [nav, nav.querySelector("[aria-current]")].map((element) => element.getBoundingClientRect());
  nav.scrollTop += Math.min(0, entry.top - frame.top) + Math.max(0, entry.bottom - frame.bottom);
}

function build(chosen) {
  view.name = `ranker ${chosen.name}`;
  showCurrent($$("rankers"));
  document.title = `${chosen.name} · rankloop`;
  view.charts = CHARTS.map((chart) => Object.assign(new LineChart(chart), { optional: chart.optional }));
  CHARTS.forEach((chart, i) => view.charts[i].element.classList.toggle("whole", Boolean(chart.whole)));
  const part = (name, title, help, wide) => {
    view.parts[name] = h("div", { class: "part" });
    return h("section", { class: wide ? "card wide" : "card", "aria-label": title }, h("header", {}, h("h2", {}, title)),
      help && h("p", { class: "help" }, help), view.parts[name]);
  };
  const head = { title: h("h1", {}, chosen.name), controls: h("div", { class: "controls" }), notices: h("div", { class: "notices" }), doing: h("p", { class: "doing" }) };
  view.head = head;
  const lists = part("lists", "Latest impressions", "What was shown, explored and clicked. The list does not change while you point at it.", true);
  lists.addEventListener("pointerenter", () => { state.held = true; });
  lists.addEventListener("pointerleave", () => { state.held = false; });
  $$("main").replaceChildren(
    h("div", { class: "head" }, head.title, head.controls), head.notices, head.doing,
    h("h2", { class: "unseen" }, "Curves"), h("div", { class: "charts" }, view.charts.map((chart) => chart.element)),
    h("div", { class: "pair" }, part("positions", "Clicks by position", "Share of impressions in which the position was clicked."),
      part("weights", "Weights", "What a feature adds to the score, with its confidence interval. Pale: the interval contains 0.")),
    lists,
    part("proofs", "Experiments", "Which ranking users prefer, measured on live traffic.", true), part("versions", "Versions", null, true),
    part("events", "Events", null, true), part("details", "Details", null, true));
}

// What needs someone to act, the most urgent first.
function notices(chosen) {
  return [
    chosen.trouble && h("p", { class: "warning" }, h("b", {}, "Problem: "), `${chosen.trouble}.`),
    eventNotice(chosen),
    chosen.demoted && demotedNotice(chosen),
    !chosen.ready && h("p", { class: "warning calm" }, h("b", {}, "Not ready yet: "), `${chosen.waiting_for}.`),
    ...(chosen.warnings ?? []).map((text) => h("p", { class: "warning calm" }, text)),
  ];
}

function drawRanker(chosen) {
  const { head, parts } = view;
  const series = state.series.get(chosen.name);
  const now = series?.now ?? Date.now() / 1000;
  const locked = lockedBy();
  if (head.doing.textContent !== doing(chosen)) head.doing.textContent = doing(chosen);
  renew(head.notices, [chosen.trouble, chosen.events, chosen.demoted, chosen.ready, chosen.waiting_for, chosen.warnings], () => notices(chosen));
  renew($$("store"), state.service, () => (state.service ? storeWords(state.service) : null));
  renew(head.controls, [chosen.etag, chosen.demoted, locked], () => controls(chosen, locked, refresh));
  if (series) {
    const since = beginning(series);
    const markers = state.versions.filter((one) => one.note !== "kept by the clock").map((one) => ({ at: one.created, text: one.note || `v${one.version}` }));
    const known = figures(chosen, series);
    for (const chart of view.charts) {
      const lines = compared().map((one) => {
        const found = state.series.get(one.name);
        const hidden = found && found.total[chart.field] !== undefined && figures(one, found)[chart.field] === undefined;
        return { name: one.name, color: color(one.name), points: hidden ? [] : found?.points ?? [] };
      });
      const value = chart.field === "unlearned_impressions" ? chosen.unlearned_impressions : known[chart.field];
      chart.update({ lines, selected: chosen.name, since, now, step: series.step, markers, value,
        period: chart.field === "unlearned_impressions" ? "now" : state.period });
      chart.element.hidden = Boolean(chart.optional) && series.total[chart.field] === undefined;
    }
    renew(parts.positions, series.positions, () => positionTable(series.positions));
  }
  if (state.weights) renew(parts.weights, state.weights.weights, () => weightTable(state.weights));
  if (state.lists) renew(parts.lists, [state.lists, Math.floor(now / 5)], () => latestLists(chosen.name, state.lists, state.experiments, now));
  const names = state.rankers.map((one) => one.name);
  renew(parts.proofs, [state.experiments, state.versions.length, names, chosen.serving, locked], () => proofs(
    chosen, state.experiments, state.versions, state.rankers, locked,
    (body) => carryOut(() => call("POST", rankerPath(chosen.name, "/experiments"), body), () => "The experiment has started.", refresh),
    (one) => carryOut(() => call("POST", rankerPath(chosen.name, `/experiments/${one.number}/stop`)), () => `Experiment ${one.number} has stopped.`, refresh)));
  renew(parts.versions, [state.versions, chosen.etag, chosen.serving, chosen.learning, locked, Math.floor(now / 5)], () => [
    versionTable(chosen, state.versions, now, locked, (action, version) => changeVersion(chosen, action, version, refresh)),
    h("p", { class: "row" }, h("button", permitted(locked, { type: "button", class: "plain", onclick: () => carryOut(
      () => orForced((force) => call("POST", rankerPath(chosen.name, "/versions"), { note: "kept by hand", force }), "Keep it anyway"), (kept) => `v${kept.version} is kept.`, refresh) }),
    "Keep a version now")),
  ]);
  renew(parts.events, [chosen.events, state.service?.events], () => eventTable(chosen, state.service));
  parts.events.parentElement.hidden = !chosen.events;
  renew(parts.details, [chosen.etag, chosen.open_impressions, chosen.model_impressions, chosen.fallbacks, state.movement, state.catalog],
    () => detailList(chosen, state.movement, state.catalog));
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
  $$("theme").setAttribute("aria-label", dark ? "Use light colors" : "Use dark colors");
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
