// What is best said in a table: clicks by position, weights of features, versions; and in a line, how far a ranker has moved.

function positionTable(positions) {
  if (!positions.length) {
    return h("p", { class: "nothing" }, "No list has its feedback yet in this time. Report clicks to ", h("code", {}, "POST /v1/feedback"), ".");
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
  if (!found.linear) return h("p", { class: "nothing" }, "This learner has no weights: it does not score by a sum of features.");
  if (!found.weights.length) return h("p", { class: "nothing" }, "Nothing is learned yet: every feature weighs 0.");
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

// act(action, version) asks first, then does it.
function versionTable(status, versions, now, act) {
  const pinned = status.serving !== "live";
  const HELP = { promote: "Serve it; learning goes on behind it", rollback: "Serve it and learn on from it; what is known now is kept first" };
  const button = (text, label, action, version) => h("button",
    { type: "button", class: "plain", "aria-label": label, title: HELP[action], onclick: () => act(action, version) }, text);
  const live = h("tr", { class: pinned ? null : "current" }, h("th", { scope: "row" }, "live"),
    h("td", {}, status.learning ? "learning now" : "paused"), h("td", { class: "number" }, whole.format(status.knows ?? status.learned)),
    h("td", { class: "wide" }, pinned ? "" : "served"),
    h("td", { class: "actions" }, pinned && button("Promote", "Promote live", "promote", "live")));
  const rows = versions.map((one) => h("tr", { class: one.serving ? "current" : null },
    h("th", { scope: "row" }, `v${one.version}`), h("td", { title: moment(one.created) }, ago(one.created, now)),
    h("td", { class: "number" }, whole.format(one.knows ?? one.learned)), h("td", { class: "wide" }, one.serving ? `${one.note} · served` : one.note),
    h("td", { class: "actions" },
      !one.serving && button("Promote", `Promote version ${one.version}`, "promote", one.version),
      button("Roll back", `Roll back to version ${one.version}`, "rollback", one.version))));
  const names = ["Version", "Kept", "Learned from", "Note"];
  const head = h("tr", {}, ...names.map((name) => h("th", { scope: "col", class: name === "Learned from" ? "number" : null }, name)),
    h("td", {}));
  return h("div", { class: "scroll versions" }, h("table", { class: "plain" }, h("thead", {}, head), h("tbody", {}, live, rows)));
}

// One sentence for those who know nothing of learners: what a ranker does at this moment, and what it waits for.
function doingWords(one, points) {
  const { learner, exposure } = one.spec;
  if (learner === "base") return "Shows your order to everyone; it never learns.";
  if (learner === "random") return "Shows items in any order; it never learns.";
  if (!one.ready) return "Shows your order until its code is compiled.";
  if (one.trouble) return "Shows your order, because something is wrong with what it knows.";
  if (one.demoted) return "Shows your order, because users preferred it; learns on behind it.";
  const shows = exposure === "shadow" ? "Shows your order" : one.serving === "live" ? "Shows what it has learned" : `Shows ${one.serving}, as promoted`;
  if (!one.learning) return `${shows}; learning is paused.`;
  if (one.learner_process === null) return `${shows}; no process learns at present.`;
  if (!one.learned) return "Shows your order, and waits for the first clicks.";
  if (one.lag > 100) return `${shows}; ${many(one.lag, "list")} wait to be learned.`;
  if (exposure === "shadow" || one.serving !== "live") return `${shows}, and learns behind it.`;
  const last = (name) => points?.findLast((point) => point[name] !== undefined && point[name] !== null)?.[name];
  const rough = (value) => `${Math.round(100 * value)}\u00a0%`;
  const tried = last("explored"), unsure = last("uncertain");
  if (learner === "bubblerank") return bubbleWords(one, unsure === undefined ? "" : `; ${rough(unsure)} of neighbours are on trial`);
  const bounded = exposure === "bounded" ? `, at most ${many(one.spec.displacement, "place")} from your order` : "";
  if (tried === undefined) return `${shows}${bounded}.`;
  const doubt = unsure === undefined ? "" : `, unsure of ${rough(unsure)} of pairs`;
  return tried < 0.05 ? `${shows}${bounded}; hardly tries anything by now${doubt}.` : `${shows}${bounded}; tries something else in ${rough(tried)} of places${doubt}.`;
}

// What BubbleRank waits for. Of n clicks that fell on one of two neighbours the better must lead by more than
// √(n · 4 log(1/δ)), so by all of them while n is small; δ is delta, or horizon^-4. Without either it grows with time.
function bubbleWords(one, trial) {
  const { delta, horizon } = one.spec.parameters;
  const bar = delta ? 4 * Math.log(1 / delta) : horizon ? 16 * Math.log(horizon) : null;
  const wins = bar === null ? "many clicks that agree" : `${Math.floor(bar) + 1} clicks or more that agree`;
  return `Slow and safe: exchanges two neighbours after ${wins}, for each query anew${trial}.`;
}

// What it has learned from: `learned` counts on over resets and rollbacks, `knows` is what is in it.
function learnedWords({ learned, knows, origin }) {
  const words = `learned from ${many(knows ?? learned, "list")}`;
  return origin.how === "rollback" ? `${words}, ${whole.format(origin.learned_since)} of them since it went back to ${backTo(origin)}` : words;
}

const backTo = (origin) => (origin.version === null ? "a version" : `v${origin.version}`);

function originWords({ origin }) {
  if (origin.how !== "rollback" && origin.how !== "reset") return "";
  const what = origin.how === "rollback" ? `Rolled back to ${backTo(origin)}` : "Reset";
  const kept = origin.kept === null ? "" : `; what it knew until then is v${origin.kept}`;
  return `${what} on ${moment(origin.since)}${kept}`;
}

// Lists that were the caller's order for want of a better, by what was wanting; of the process that answered.
function fallbackWords(fallbacks) {
  const told = Object.entries(fallbacks).map(([reason, n]) => `${whole.format(n)} because ${REASONS[reason] ?? reason}`);
  return told.length ? `Your order instead of its own since the start: ${told.join(", ")}` : "";
}

// The catalogue that its features come from: how much there is, and what requests wanted that is not in it.
function catalogueWords(found) {
  if (!found) return "";
  if (!found.items) return `Catalogue ${found.name}: nothing is uploaded yet, so no id is known`;
  const users = found.users.count ? `, ${many(found.users.count, "user")}` : "";
  const behind = found.items.behind ? `, ${many(found.items.behind, "change")} not taken in yet` : "";
  const strange = `${many(found.unknown_ids, "id")} in requests since the start ${found.unknown_ids === 1 ? "was" : "were"} not in it`;
  return `Catalogue ${found.name}: ${many(found.items.count, "item")}${users}, ${bytes(found.memory)} in memory${behind}; ${strange}`;
}

// One line: how far from the caller's order, what is remembered, what was noticed. What a learner does not tell is left out.
function movementWords(found) {
  const rough = (value) => `${Math.round(value * 100)}\u00a0%`;
  const words = [];
  if (!found.lists) words.push("Moved from your order: no list yet");
  else if (found.displacement === 0) words.push("Moved from your order: not at all");
  else {
    words.push(`Moved from your order: ${found.displacement.toFixed(1)} places`, `${rough(found.agreement)} of pairs as you had them`,
      `first item the same in ${rough(found.same_first)} of lists`);
  }
  if (found.brought_up) words.push(`${rough(found.brought_up)} of items brought up from below`);
  if (found.memory) {
    const known = found.memory.share === null ? "" : `, ${rough(found.memory.share)} of lists`;
    words.push(`${found.memory.queries === 1 ? "1 query" : `${whole.format(found.memory.queries)} queries`} remembered${known}`);
  }
  if (found.drift) words.push(driftWords(found.drift));
  return words.join("; ");
}

function driftWords({ alarms, latest, since, lists }) {
  const back = (list) => `${many(lists - list, "list")} ago`;
  const last = latest.at(-1);
  const took = since && since !== last ? ` (another model took over ${back(since)})` : "";
  return `${alarms ? `users changed ${alarms === 1 ? "once" : `${alarms} times`}, last ${back(last)}` : "no drift noticed"}${took}`;
}
