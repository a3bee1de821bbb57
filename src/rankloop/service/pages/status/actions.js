// What an operator does here: each action says in a dialog what will happen, then what has.

let toastTimer = 0;

function tell(text) {
  $$("told").textContent = text;
  $$("told").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $$("told").hidden = true; }, 6000);
}

// Resolves to whether the person agreed; with `confirm` left out there is nothing to agree to but the text.
function ask(title, text, confirm) {
  const dialog = $$("ask");
  const form = h("form", { method: "dialog" }, h("h2", { id: "ask-title" }, title), ...text.map((line) => h("p", {}, line)),
    h("p", { class: "row end" }, h("button", { value: "no", class: "plain" }, "Cancel"), h("button", { value: "yes" }, confirm)));
  dialog.replaceChildren(form);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

const QUESTIONS = {
  promote: (name, version) => version === "live"
    ? ["Serve what is being learned?", [`${name} ranks with its newest weights again, and they change with every click.`], "Promote live"]
    : [`Serve version ${version}?`, [`${name} ranks with v${version} from now on. Learning goes on behind it; promote live to return.`],
      `Promote v${version}`],
  rollback: (name, version) => [`Roll back to version ${version}?`,
    [`${name} serves and learns from v${version} again.`, "What it knows now is kept as a version first, so this can be undone."],
    `Roll back to v${version}`],
};

// Does `work`, then tells `done` or what went wrong; `refresh` makes the page see it.
async function carryOut(work, done, refresh) {
  try {
    const answer = await work();
    tell(typeof done === "function" ? done(answer) : done);
  } catch (error) {
    tell(error instanceof Refused ? `Refused: ${error.message}` : `Not done: ${error.message}`);
  }
  await refresh();
}

// An action that the service refuses because acknowledged outcomes are not learned yet: show why, and offer to force it.
async function orForced(send, confirm) {
  try {
    return await send(false);
  } catch (error) {
    if (error.error !== "not-learned" || !(await ask("Some outcomes are not learned yet", [error.message], confirm))) throw error;
    return send(true);
  }
}

async function changeVersion(status, action, version, refresh) {
  const { name, etag } = status;
  const [title, text, confirm] = QUESTIONS[action](name, version);
  if (!(await ask(title, text, confirm))) return;
  const done = action === "promote" ? `${name} serves ${version === "live" ? "live" : `v${version}`}.` : `${name} is back at v${version}.`;
  const send = (force) => call("POST", rankerPath(name, `/${action}`), { version, force }, etag);
  await carryOut(() => orForced(send, `${confirm} anyway`), done, refresh);
}

// Exposure, pause and keep: the controls beside a ranker's name.
function controls(status, refresh) {
  const { name, spec, etag } = status;
  const patch = (changes, done) => carryOut(() => call("PATCH", rankerPath(name), changes, etag), done, refresh);
  const choose = async (event) => {
    const exposure = event.target.value;
    const known = status.demoted ? [`The guardrail has put it into shadow: ${evidenceWords(status.demoted)}. A new watch begins.`] : [];
    const agreed = exposure === "shadow"
      || await ask(`Put ${name} to ${exposure}?`, [EXPOSURES[exposure], ...known], `Put to ${exposure}`);
    if (agreed) await patch({ exposure }, `${name} is ${exposure}.`);
    else event.target.closest("fieldset").querySelector(`[value=${spec.exposure}]`).checked = true;
  };
  const options = Object.keys(EXPOSURES).map((exposure) => h("label", { title: EXPOSURES[exposure] },
    h("input", { type: "radio", name: "exposure", value: exposure, checked: exposure === spec.exposure, onchange: choose }),
    h("span", {}, exposure)));
  const moves = spec.exposure === "bounded" && h("label", { class: "moves" }, "up to ",
    h("input", { type: "number", min: "0", max: "1000", value: String(spec.displacement), "aria-label": "positions an item may move",
      onchange: (event) => patch({ displacement: Number(event.target.value) }, `${name} moves items by ${event.target.value} at most.`) }),
    " positions");
  const paused = !status.learning;
  return [
    h("fieldset", { class: "segments" }, h("legend", { class: "unseen" }, "Exposure"), ...options),
    moves || null,
    h("button", { type: "button", class: "plain", onclick: () => carryOut(
      () => call("POST", rankerPath(name, paused ? "/resume" : "/pause"), undefined, etag),
      paused ? `${name} learns again.` : `${name} has stopped learning; feedback is still kept.`, refresh) },
    paused ? "Resume learning" : "Pause learning"),
  ];
}
