// The latest impressions: what was shown, what was explored and why, what was clicked.

function listItem(shown, experiments, now) {
  const tried = new Set(shown.doubts.filter((doubt) => doubt.swapped).flatMap((doubt) => [doubt.upper, doubt.lower]));
  const clicks = shown.items.filter((item) => item.value > 0).length;
  const told = shown.items.some((item) => item.value !== null);
  const end = clicks ? many(clicks, "click") : told ? "no click" : shown.outcome === "open" ? "waits for feedback" : "no feedback";
  return h("li", { class: "shown" },
    h("p", { class: "line" }, h("b", {}, shown.query || "no query"), h("span", {}, ago(shown.created, now)), h("span", {}, end),
      !shown.learned && h("span", { class: "tag" }, "not learned")),
    h("ol", { class: "chips" }, shown.items.slice(0, 12).map((item) => chip(item, tried.has(item.position)))),
    shown.items.length > 12 && h("p", { class: "help" }, `and ${shown.items.length - 12} more`),
    (shown.attention ?? []).map((one) => h("p", { class: "rejected" }, `Event ${one.event_id} was rejected: ${one.reason}`)),
    h("p", { class: "why" }, why(shown, experiments)));
}

function chip(item, tried) {
  const moved = item.base - item.position;
  const words = [moved && `${Math.abs(moved)} ${moved > 0 ? "up" : "down"} from the baseline`, tried && "explored", item.value > 0 && "clicked",
    typeof item.reward === "number" && `reward ${item.reward}`];
  const label = words.filter(Boolean).join(", ");
  return h("li", { class: ["chip", tried && "tried", item.value > 0 && "clicked"].filter(Boolean).join(" "), title: label || null },
    h("span", { class: "place", "aria-hidden": "true" }, String(item.position)), h("span", { class: "name" }, String(item.id)),
    moved !== 0 && h("span", { class: moved > 0 ? "up" : "down", "aria-hidden": "true" }, `${moved > 0 ? "↑" : "↓"}${Math.abs(moved)}`),
    label && h("span", { class: "unseen" }, ` (${label})`));
}

// One sentence, or nothing if nothing is known.
function why(shown, experiments) {
  const at = (position) => h("b", {}, String(shown.items[position - 1].id));
  if (shown.reason) return [`Baseline ranking: ${REASONS[shown.reason] ?? shown.reason}.`];
  if (shown.exposure === "shadow") {
    const best = shown.items.find((item) => item.best === 1);
    if (!best) return ["The baseline ranking was shown."];
    if (best.position === 1) return ["The baseline ranking was shown. The ranker would put the same item first."];
    return ["The baseline ranking was shown. The ranker would put ", at(best.position), " first."];
  }
  if (shown.experiment !== null) {
    const one = experiments.find((each) => each.number === shown.experiment);
    const what = one?.kind === "guardrail" ? "the guardrail" : `experiment ${shown.experiment}`;
    return [`Interleaved with ${one ? opponent(one.against) : "another ranking"}, for ${what}.`];
  }
  const unsure = shown.uncertain === null ? "" : ` Uncertain: ${shown.uncertain} of ${many(shown.pairs, "pair")}.`;
  const swaps = shown.doubts.filter((doubt) => doubt.swapped);
  if (swaps.length) {
    const [first] = swaps;
    const more = swaps.length > 1 ? ` and ${many(swaps.length - 1, "more swap")}` : "";
    return ["Explored: ", at(first.upper), " above ", at(first.lower), `${more}, against the estimate, in order to learn.${unsure}`];
  }
  if (shown.uncertain !== null) return [shown.uncertain ? `In order of the estimate.${unsure}` : "In order of the estimate. Every pair is certain."];
  if (shown.items.every((item) => item.best === null)) {
    return shown.items.every((item) => item.base === item.position) ? ["Baseline ranking."] : [];
  }
  const explored = shown.items.some((item) => item.best !== item.position);
  return [explored ? "Not in order of the estimate: some items were moved in order to learn." : "In order of the estimate."];
}

function latestLists(name, lists, experiments, now) {
  if (!lists.length) {
    return h("p", { class: "nothing" }, "No ranking has been shown yet. Request one: ", h("code", {}, `POST ${rankerPath(name, "/rank")}`),
      " with your candidates.");
  }
  return h("ul", { class: "lists" }, lists.map((shown) => listItem(shown, experiments, now)));
}
