// Experiments and the guardrail: which ranking users prefer. The interval is valid however often it is looked at.

const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + decimal.format(Math.abs(value));

function opponent(name) {
  return name === "base" ? "the baseline" : name === "live" ? "the live model" : name;
}

// The interval on a line from the opponent's side to the ranker's.
function intervalPlot(one) {
  const [low, high] = one.interval;
  const reach = Math.max(Math.min(Math.max(Math.abs(low), Math.abs(high)), 1), 0.1);
  const x = (value) => 150 + (value / reach) * 140;
  const kind = one.verdict === "better" ? "good" : one.verdict === "worse" ? "bad" : "open";
  return svg("svg", { class: `interval ${kind}`, viewBox: "0 0 300 44", "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 10, x2: 290, y1: 16, y2: 16 }), svg("line", { class: "zero", x1: 150, x2: 150, y1: 6, y2: 26 }),
    svg("line", { class: "span", x1: x(Math.max(low, -1)), x2: x(Math.min(high, 1)), y1: 16, y2: 16 }),
    one.preference !== null && svg("circle", { cx: x(one.preference), cy: 16, r: 5 }),
    svg("text", { x: 10, y: 38 }, opponent(one.against)), svg("text", { x: 290, y: 38, "text-anchor": "end" }, one.ranker));
}

function verdictWords(one) {
  if (one.verdict === "better") return ["Better than ", h("b", {}, opponent(one.against)), "."];
  if (one.verdict === "worse") return ["Worse than ", h("b", {}, opponent(one.against)), "."];
  if (one.kind === "guardrail" && !one.lists) return ["No data yet."];
  if (one.kind === "guardrail") return ["Not worse than ", h("b", {}, opponent(one.against)), " so far."];
  return ["Undecided against ", h("b", {}, opponent(one.against)), "."];
}

// How long it may take to find the effect that was asked for, and by the data so far.
function needed(one) {
  if (one.state !== "running" || one.verdict !== "undecided" || one.kind === "guardrail") return "";
  if (one.lists_needed === null) return " The duration cannot be estimated yet.";
  const effect = `a preference of ${decimal.format(one.effect)} or more`;
  if (one.lists_needed === 0) return ` With 95% probability, ${effect} would have been found by now.`;
  const long = one.seconds_needed === null ? "" : ` (${duration(one.seconds_needed)} at the current rate)`;
  const likely = one.lists_likely === null ? "" : ` Judged by the data so far, half of such experiments end after ${whole.format(one.lists_likely)}.`;
  return ` ${many(one.lists_needed, "more impression")}${long} find ${effect} with 95% probability.${likely}`;
}

function experimentItem(one, locked, stop) {
  const [low, high] = one.interval;
  const level = percent.format(one.level);
  const measured = one.preference === null ? "No interleaved ranking has feedback yet."
    : `Preference ${signed(one.preference)}, ${level} interval ${signed(low)} to ${signed(high)}; ${many(one.lists, "impression")}, `
      + `${whole.format(one.decided)} decided.`;
  const name = one.kind === "guardrail" ? "Guardrail" : `Experiment ${one.number}`;
  const ended = one.state === "running" ? null : h("span", { class: "tag" }, one.state);
  return h("li", { class: "proof" },
    h("div", {}, h("p", { class: "line" }, h("b", {}, name), h("span", {}, `${percent.format(one.share)} of requests`), ended),
      h("p", {}, verdictWords(one)), h("p", { class: "help" }, measured + needed(one)),
      one.note && h("p", { class: "help" }, one.note)),
    intervalPlot(one),
    one.state === "running" && one.kind === "experiment"
      && h("button", permitted(locked, { type: "button", class: "plain", "aria-label": `Stop experiment ${one.number}`, onclick: () => stop(one) }), "Stop"));
}

// begin(body) starts an experiment, stop(one) ends it. `locked`: why this key may not, or null.
function proofs(status, experiments, versions, rankers, locked, begin, stop) {
  const listed = experiments.slice(0, 6).map((one) => experimentItem(one, locked, stop));
  const running = experiments.some((one) => one.state === "running" && one.kind === "experiment");
  const choices = [["base", "the baseline"], ...(status.serving === "live" ? [] : [["live", "the live model"]]),
    ...versions.slice(0, 10).map((one) => [String(one.version), `v${one.version}`]),
    ...rankers.filter((one) => one.name !== status.name).map((one) => [one.name, `ranker ${one.name}`])];
  const form = h("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    const { against, share } = event.target.elements;
    begin({ against: /^\d+$/.test(against.value) ? Number(against.value) : against.value, share: Number(share.value) / 100 });
  } },
  h("label", {}, "Compare with ", h("select", permitted(locked, { name: "against" }), choices.map(([value, text]) => h("option", { value }, text)))),
  h("label", {}, " on ", h("input", permitted(locked, { name: "share", type: "number", min: "1", max: "100", value: "20", required: true })), " % of requests"),
  h("button", permitted(locked, { type: "submit" }), "Start"));
  return [
    listed.length ? h("ul", { class: "proofs" }, listed)
      : h("p", { class: "nothing" }, "No experiment yet. An experiment shows some users a ranking interleaved from both and counts whose items they click."),
    !running && form,
  ];
}

function evidenceWords({ when, lists, preference, interval }) {
  return `users preferred the baseline: ${signed(preference)} (${signed(interval[0])} to ${signed(interval[1])}) over ${many(lists, "impression")}, `
    + `on ${moment(when)}`;
}

function demotedNotice(status) {
  const words = evidenceWords(status.demoted);
  return h("p", { class: "warning" }, h("b", {}, "Set to shadow by the guardrail. "),
    `${words[0].toUpperCase()}${words.slice(1)}. Raise the exposure to try again.`);
}
