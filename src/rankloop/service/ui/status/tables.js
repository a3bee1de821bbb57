// Tables (clicks by position, weights, versions, events) and the sentences about a ranker.

function positionTable(positions) {
  if (!positions.length) {
    return h("p", { class: "nothing" }, "No impression has feedback yet in this period. Report clicks to ", h("code", {}, "POST /v1/feedback"), ".");
  }
  const shown = positions.slice(0, 20);
  const most = Math.max(...shown.map((one) => one.clicked / one.shown), 0.01);
  const rows = shown.map((one) => {
    const rate = one.clicked / one.shown;
    const bar = h("div", { class: "bar" });
    bar.style.width = `${((rate / most) * 100).toFixed(1)}%`;
    return h("tr", {}, h("th", { scope: "row" }, one.position > 50 ? "51+" : String(one.position)), h("td", { class: "bars" }, bar),
      h("td", { class: "number" }, percent.format(rate)));
  });
  const head = h("tr", { class: "unseen" }, h("th", { scope: "col" }, "Position"), h("th", { scope: "col" }, "Bar"),
    h("th", { scope: "col" }, "Clicked"));
  return h("table", { class: "barred" }, h("thead", {}, head), h("tbody", {}, rows));
}

function weightTable(found) {
  if (!found.linear) return h("p", { class: "nothing" }, "This learner has no feature weights.");
  if (!found.weights.length) return h("p", { class: "nothing" }, "Nothing is learned yet. Every weight is 0.");
  const most = Math.max(...found.weights.map((one) => Math.abs(one.weight) + (one.confidence ?? 0)));
  const rows = found.weights.slice(0, 12).map((one) => {
    const sure = one.confidence === null || Math.abs(one.weight) > one.confidence;
    const place = (value) => 50 + (value / most) * 50; // percent of the cell; its middle is 0
    const bar = h("div", { class: `bar both ${sure ? "" : "unsure"} ${one.weight < 0 ? "below" : ""}` });
    const ends = [place(Math.min(0, one.weight)), place(Math.max(0, one.weight))];
    bar.style.left = `${ends[0].toFixed(1)}%`;
    bar.style.width = `${(ends[1] - ends[0]).toFixed(1)}%`;
    let whisker = null;
    if (one.confidence !== null) {
      whisker = h("div", { class: "whisker" });
      whisker.style.left = `${place(one.weight - one.confidence).toFixed(1)}%`;
      whisker.style.width = `${((one.confidence / most) * 100).toFixed(1)}%`;
    }
    const value = one.confidence === null ? decimal.format(one.weight) : `${decimal.format(one.weight)} ± ${decimal.format(one.confidence)}`;
    return h("tr", { class: sure ? null : "soft" }, h("th", { scope: "row" }, one.feature),
      h("td", { class: "bars" }, h("div", { class: "axis" }), bar, whisker), h("td", { class: "number" }, value));
  });
  const head = h("tr", { class: "unseen" }, h("th", { scope: "col" }, "Feature"), h("th", { scope: "col" }, "Bar"),
    h("th", { scope: "col" }, "Weight"));
  const rest = found.features - rows.length;
  return [
    h("table", { class: "barred named" }, h("thead", {}, head), h("tbody", {}, rows)),
    rest > 0 && h("p", { class: "help" }, `and ${many(rest, "feature")} with smaller weights`),
  ];
}

// act(action, version) asks first, then does it. `locked`: why this key may not, or null.
function versionTable(status, versions, now, locked, act) {
  const pinned = status.serving !== "live";
  const HELP = { promote: "Serve it; learning continues in the background", rollback: "Serve it and learn from it; the current model is kept first" };
  const button = (text, label, action, version) => h("button",
    permitted(locked, { type: "button", class: "plain", "aria-label": label, title: HELP[action], onclick: () => act(action, version) }), text);
  const live = h("tr", { class: pinned ? null : "current" }, h("th", { scope: "row" }, "live"),
    h("td", {}, status.learning ? "learning" : "paused"), h("td", { class: "number" }, whole.format(status.model_impressions ?? status.learned_impressions)),
    h("td", { class: "wide" }, pinned ? "" : "served"),
    h("td", { class: "actions" }, pinned && button("Promote", "Promote live", "promote", "live")));
  const rows = versions.map((one) => h("tr", { class: one.serving ? "current" : null },
    h("th", { scope: "row" }, `v${one.version}`), h("td", { title: moment(one.created) }, ago(one.created, now)),
    h("td", { class: "number" }, whole.format(one.model_impressions ?? one.learned_impressions)), h("td", { class: "wide" }, one.serving ? `${one.note} · served` : one.note),
    h("td", { class: "actions" },
      !one.serving && button("Promote", `Promote version ${one.version}`, "promote", one.version),
      button("Roll back", `Roll back to version ${one.version}`, "rollback", one.version))));
  const names = ["Version", "Kept", "Impressions", "Note"];
  const head = h("tr", {}, ...names.map((name) => h("th", { scope: "col", class: name === "Impressions" ? "number" : null }, name)),
    h("td", {}));
  return h("div", { class: "scroll versions" }, h("table", { class: "plain" }, h("thead", {}, head), h("tbody", {}, live, rows)));
}

// -- events --------------------------------------------------------------------------------------------------------

const recently = (events, kind) => (events?.days ?? []).reduce((sum, day) => sum + day[kind], 0);

// Whether events of the last 7 days or impressions of this moment need someone to act.
const needsAction = ({ events }) => Boolean(events) && (recently(events, "rejected") > 0 || events.needs_attention > 0);

function eventNotice(status) {
  if (!needsAction(status)) return null;
  const { needs_attention: waiting, last_rejected: last } = status.events;
  const rejected = recently(status.events, "rejected");
  const words = [];
  if (rejected) words.push(`${many(rejected, "event")} rejected in the last 7 days.`);
  if (waiting) words.push(`${many(waiting, "impression")} ${waiting === 1 ? "is" : "are"} not learned until the rejected events are corrected.`);
  const detail = last && `Last: ${last.reason} (event ${last.event_id}, ${moment(last.time)}). `;
  return h("div", { class: "warning" }, h("p", {}, h("b", {}, words.join(" "))), h("p", {}, detail, "Correct the events and send them again."));
}

// `service` counts events that belong to no known ranker.
function eventTable(status, service) {
  const { events } = status;
  if (!events) return h("p", { class: "nothing" }, "No data yet.");
  const row = (name, help, alarm, recent, total) => h("tr", {}, h("th", { scope: "row", title: help }, name),
    h("td", { class: `number ${recent ? alarm : ""}` }, recent === null ? "" : whole.format(recent)),
    h("td", { class: "number" }, total === null ? "" : whole.format(total)), h("td", { class: "wide help" }, help));
  const kinds = [
    ["Rejected", "rejected", "The event breaks a rule. Its impression is not learned until the event is corrected.", "alarm"],
    ["Late", "late", "The impression was closed before. The event is stored and not learned.", "alarm"],
    ["Duplicate", "duplicate", "The event was sent before. It counts once.", "mild"]];
  const rows = kinds.map(([name, kind, help, alarm]) => row(name, help, alarm, recently(events, kind), events[kind]));
  rows.unshift(h("tr", {}, h("th", { scope: "row" }, "Need attention"),
    h("td", { class: `number ${events.needs_attention ? "alarm" : ""}` }, whole.format(events.needs_attention)), h("td", {}),
    h("td", { class: "wide help" }, "Impressions that wait for a corrected event, now.")));
  if (service?.events) {
    rows.push(row("Orphan", "No impression has this id. Counted for the whole service.", "alarm", recently(service.events, "orphan"), service.events.orphan));
    const strange = service.events.rejected;
    if (strange) rows.push(row("Unreadable", "The event names no known impression. Counted for the whole service.", "alarm", recently(service.events, "rejected"), strange));
  }
  const head = h("tr", {}, h("th", { scope: "col" }, "Events"), h("th", { scope: "col", class: "number" }, "Last 7 days"),
    h("th", { scope: "col", class: "number" }, "In all"), h("th", { scope: "col" }, "Meaning"));
  return h("table", { class: "plain events" }, h("thead", {}, head), h("tbody", {}, rows));
}

// -- sentences -----------------------------------------------------------------------------------------------------

const ENOUGH = 20; // impressions in the model before shares of exploration are shown

// What the header and the cards show of a period: the series' total, without shares of exploration that rest on too little.
function figures(one, series) {
  const total = { ...series?.total };
  if ((one.model_impressions ?? one.learned_impressions) < ENOUGH) {
    delete total.explored;
    delete total.uncertain;
  }
  return total;
}

// One sentence: what the ranker shows, and what it waits for.
function doingWords(one, series, period) {
  const { learner, exposure } = one.spec;
  if (learner === "base") return "Shows the baseline ranking. It does not learn.";
  if (learner === "random") return "Shows a random ranking. It does not learn.";
  if (!one.ready) return "Shows the baseline ranking until its kernels are compiled.";
  if (one.trouble) return "Shows the baseline ranking, because its model cannot be used.";
  if (one.demoted) return "Shows the baseline ranking, because users preferred it. Learns in the background.";
  const shows = exposure === "shadow" ? "Shows the baseline ranking" : one.serving === "live" ? "Shows the learned ranking" : `Shows version ${one.serving}`;
  const bounded = exposure === "bounded" ? `, at most ${many(one.spec.displacement, "position")} from the baseline` : "";
  if (!one.learning) return `${shows}${bounded}. Learning is paused.`;
  if (one.learner_process === null) return `${shows}${bounded}. No process learns.`;
  if (!one.learned_impressions) return "Shows the baseline ranking and waits for the first feedback.";
  if (one.unlearned_impressions > 100) return `${shows}${bounded}. ${many(one.unlearned_impressions, "impression")} wait to be learned.`;
  if (exposure === "shadow" || one.serving !== "live") return `${shows}${bounded}. Learns in the background.`;
  if (!series) return `${shows}${bounded}.`; // of rankers that are not drawn
  const { explored, uncertain } = figures(one, series);
  if (explored === undefined) return `${shows}${bounded}. Exploration: no data yet.`;
  const doubt = uncertain === undefined ? "" : `, ${percent.format(uncertain)} of pairs uncertain`;
  return `${shows}${bounded}. ${period[0].toUpperCase()}${period.slice(1)}: ${percent.format(explored)} of positions explored${doubt}.`;
}

// BubbleRank exchanges two neighbors when of n clicks on one of the two the better leads by more than √(n · 4 log(1/δ)).
// δ is delta, or horizon^-4. While n is small all n clicks must agree.
function bubbleWords({ spec }) {
  const { delta, horizon } = spec.parameters;
  const bar = delta ? 4 * Math.log(1 / delta) : horizon ? 16 * Math.log(horizon) : null;
  const wins = bar === null ? "many clicks that agree" : `at least ${Math.floor(bar) + 1} clicks that agree`;
  return `Exchanges two neighbors of a query after ${wins}`;
}

const backTo = (origin) => (origin.version === null ? "a version" : `v${origin.version}`);

// model_impressions is what the model contains; learned_impressions counts on over resets and rollbacks.
function learnedWords({ learned_impressions: learned, model_impressions: known, origin }) {
  const words = many(known ?? learned, "impression");
  return origin.how === "rollback" ? `${words}, ${whole.format(origin.impressions_since)} of them since the rollback to ${backTo(origin)}` : words;
}

function originWords({ origin }) {
  if (origin.how !== "rollback" && origin.how !== "reset") return "";
  const what = origin.how === "rollback" ? `rolled back to ${backTo(origin)}` : "reset";
  const kept = origin.kept === null ? "" : `; the model from before is v${origin.kept}`;
  return `${what} on ${moment(origin.since)}${kept}`;
}

// Baseline rankings shown instead of learned ones, by reason; of the process that answered.
const fallbackWords = (fallbacks) => Object.entries(fallbacks).map(([reason, n]) => `${whole.format(n)} because ${REASONS[reason] ?? reason}`).join(", ");

// The catalog that features are read from: how much there is, and which ids of requests are not in it.
function catalogWords(found) {
  if (!found) return "";
  if (!found.items?.count && !found.users?.count) return `${found.name}: nothing is uploaded yet`;
  const users = found.users.count ? `, ${many(found.users.count, "user")}` : "";
  const behind = found.items.behind ? `, ${many(found.items.behind, "change")} not loaded yet` : "";
  return `${found.name}: ${many(found.items.count, "item")}${users}, ${bytes(found.memory)} in memory${behind}; `
    + `${many(found.unknown_ids, "id")} in requests since the start not in it`;
}

const rough = (value) => `${Math.round(value * 100)}\u00a0%`;

// How far the estimate is from the baseline ranking.
function movementWords(found) {
  if (!found.lists) return "";
  if (found.displacement === 0) return "not at all";
  const words = [`${found.displacement.toFixed(1)} positions per item`, `${rough(found.agreement)} of pairs in the same order`,
    `same first item in ${rough(found.same_first)} of rankings`];
  if (found.brought_up) words.push(`${rough(found.brought_up)} of shown items come from below the cut`);
  return words.join("; ");
}

function memoryWords({ memory }) {
  if (!memory) return "";
  const known = memory.share === null ? "" : `, which are ${rough(memory.share)} of impressions`;
  return `${memory.queries === 1 ? "1 query" : `${whole.format(memory.queries)} queries`}${known}`;
}

function driftWords({ drift }) {
  if (!drift) return "";
  const { alarms, latest, since, lists } = drift;
  const back = (list) => `${many(lists - list, "impression")} ago`;
  const last = latest.at(-1);
  const took = since && since !== last ? `; another model took over ${back(since)}` : "";
  return `${alarms ? `${many(alarms, "change")} of users, the last ${back(last)}` : "none found"}${took}`;
}

// The facts about a ranker that nobody has to act on: name and value, without those that are empty.
function detailList(status, movement, catalog) {
  const learns = !FIXED.includes(status.spec.learner);
  const facts = [
    ["Learner", status.spec.learner === "bubblerank" ? `bubblerank. ${bubbleWords(status)}` : status.spec.learner],
    ["Serves", status.serving === "live" ? "the live model" : `version ${status.serving}`],
    ["Learned from", learns ? learnedWords(status) : "does not learn"],
    ["Waiting for feedback", many(status.open_impressions, "impression")],
    ["Moved from the baseline", learns && movement ? movementWords(movement) : ""],
    ["Queries remembered", movement ? memoryWords(movement) : ""],
    ["Drift", movement ? driftWords(movement) : ""],
    ["Origin", originWords(status)],
    ["Fallbacks since start", fallbackWords(status.fallbacks)],
    ["Catalog", catalogWords(catalog)],
  ];
  return h("dl", { class: "details" }, facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
