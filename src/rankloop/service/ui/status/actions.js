// Actions: each shows in a dialog what it will do, and then what the service answered.

let toastTimer = 0;

function tell(text) {
  $$("told").textContent = text;
  $$("told").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { $$("told").hidden = true; }, 6000);
}

// Resolves to whether the person agreed.
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
    ? ["Serve the live model?", [`${name} ranks with its newest model. It changes with every click.`], "Promote live"]
    : [`Serve version ${version}?`, [`${name} ranks with v${version}. Learning continues in the background. Promote live to return.`],
      `Promote v${version}`],
  rollback: (name, version) => [`Roll back to version ${version}?`,
    [`${name} serves v${version} and continues to learn from it.`, "The current model is kept as a version first, so this can be undone."],
    `Roll back to v${version}`],
};

// Runs `work` and shows `done` of the answer, or the error. `refresh` then draws every control by what the service
// answered, so that a control never shows what was pressed and refused.
async function carryOut(work, done, refresh) {
  let answer;
  try {
    answer = await work();
    tell(done(answer));
  } catch (error) {
    tell(error instanceof Refused ? `Refused: ${error.message}` : `Failed: ${error.message}`);
  }
  await refresh(answer);
}

// An action that the service refuses because closed impressions are not learned yet: show why, and offer to force it.
async function orForced(send, confirm) {
  try {
    return await send(false);
  } catch (error) {
    if (error.error !== "not-learned" || !(await ask("Some impressions are not learned yet", [error.message], confirm))) throw error;
    return send(true);
  }
}

async function changeVersion(status, action, version, refresh) {
  const { name, etag } = status;
  const [title, text, confirm] = QUESTIONS[action](name, version);
  if (!(await ask(title, text, confirm))) return;
  const done = (answer) => action === "promote" ? `${name} serves ${answer.serving}.` : `${name} is back at v${version}.`;
  const send = (force) => call("POST", rankerPath(name, `/${action}`), { version, force }, etag);
  await carryOut(() => orForced(send, `${confirm} anyway`), done, refresh);
}

// Exposure and pause: the controls beside a ranker's name. `locked`: why this key may not change anything, or null.
function controls(status, locked, refresh) {
  const { name, spec, etag } = status;
  const patch = (changes, done) => carryOut(() => call("PATCH", rankerPath(name), changes, etag), done, refresh);
  const choose = async (event) => {
    const exposure = event.target.value;
    event.target.closest("fieldset").querySelector(`[value=${spec.exposure}]`).checked = true; // in force until the answer
    const known = status.demoted ? [`The guardrail set it to shadow: ${evidenceWords(status.demoted)}. A new comparison starts.`] : [];
    const agreed = exposure === "shadow"
      || await ask(`Set ${name} to ${exposure}?`, [EXPOSURES[exposure], ...known], `Set to ${exposure}`);
    if (agreed) await patch({ exposure }, (answer) => `${name} is ${answer.spec.exposure}.`);
  };
  const options = Object.keys(EXPOSURES).map((exposure) => h("label", { title: locked ?? EXPOSURES[exposure] },
    h("input", permitted(locked, { type: "radio", name: "exposure", value: exposure, checked: exposure === spec.exposure, onchange: choose })),
    h("span", {}, exposure)));
  const moves = spec.exposure === "bounded" && h("label", { class: "moves" }, "up to ",
    h("input", permitted(locked, { type: "number", min: "0", max: "1000", value: String(spec.displacement), "aria-label": "positions an item may move",
      onchange: (event) => patch({ displacement: Number(event.target.value) },
        (answer) => `${name} moves items by at most ${many(answer.spec.displacement, "position")}.`) })),
    " positions");
  const paused = !status.learning;
  return [
    h("fieldset", { class: "segments" }, h("legend", { class: "unseen" }, "Exposure"), ...options),
    moves || null,
    h("button", permitted(locked, { type: "button", class: "plain", onclick: () => carryOut(
      () => call("POST", rankerPath(name, paused ? "/resume" : "/pause"), undefined, etag),
      (answer) => (answer.learning ? `${name} is learning.` : `${name} is paused. Feedback is stored and not learned.`), refresh) }),
    paused ? "Resume learning" : "Pause learning"),
    locked && h("p", { class: "help locked" }, `Read only. ${locked}`),
  ];
}
