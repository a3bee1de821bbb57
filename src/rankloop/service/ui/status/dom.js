// Elements, calls and words. No library: the page must work on a machine without internet and stay small.

const $$ = (id) => document.getElementById(id);

// h("li", { class: "chip", onclick: f, "aria-label": "…" }, "text", element, null)
function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Puts `make()` into `element` if `data` is other than the last time. Who has the focus keeps it; what is being filled in stays,
// and so does what one has scrolled to.
function renew(element, data, make) {
  const text = JSON.stringify(data);
  if (element.dataset.shown === text) return;
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  if (active?.matches("select, input:not([type=radio])")) return;
  const scrolled = element.querySelector(".scroll")?.scrollTop ?? 0;
  element.dataset.shown = text;
  element.replaceChildren(...[make()].flat().filter(Boolean));
  if (scrolled) element.querySelector(".scroll").scrollTop = scrolled;
  if (active) [...element.querySelectorAll(active.tagName)].find((other) => known(other) === known(active))?.focus();
}

// What an element is to a person: the same words lead to the same thing.
const known = (element) => [element.getAttribute("aria-label"), element.getAttribute("href"), element.value, element.textContent].join("|");

// -- the service --------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, message, error) {
    super(message);
    this.status = status;
    this.error = error;
  }
}

// The key stays in this tab: sessionStorage ends with it.
const adminKey = {
  get: () => sessionStorage.getItem("rankloop-key"),
  set: (value) => sessionStorage.setItem("rankloop-key", value),
  drop: () => sessionStorage.removeItem("rankloop-key"),
};

// `seen` is the etag of the ranker that is shown: what is pressed is about that one, and refused if it has changed since.
async function call(method, path, body, seen) {
  const headers = seen ? { "If-Match": seen } : {};
  if (adminKey.get()) headers.Authorization = `Bearer ${adminKey.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const options = { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" };
  const answer = await fetch(path, { ...options, signal: AbortSignal.timeout(10000) });
  const text = await answer.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { /* told below */ }
  if (!answer.ok) throw new Refused(answer.status, found?.message ?? `${answer.status} ${answer.statusText}`, found?.error);
  return found;
}

const rankerPath = (name, more = "") => `/v1/rankers/${encodeURIComponent(name)}${more}`;

// -- words --------------------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const decimal = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hour12: false });
const clockSeconds = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
const dayClock = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });

const many = (n, noun) => `${whole.format(n)} ${noun}${n === 1 ? "" : "s"}`;
const moment = (seconds) => dayClock.format(seconds * 1000);

function duration(seconds) {
  if (seconds < 90) return many(Math.max(1, Math.round(seconds)), "second");
  if (seconds < 5400) return many(Math.round(seconds / 60), "minute");
  if (seconds < 129600) return many(Math.round(seconds / 3600), "hour");
  return many(Math.round(seconds / 86400), "day");
}

function bytes(count) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(count, 1)) / 3), units.length - 1);
  const value = count / 1000 ** power;
  return `${value < 10 && power ? value.toFixed(1) : whole.format(value)}\u00a0${units[power]}`;
}

const ago = (then, now) => (now - then < 2 ? "just now" : `${duration(now - then)} ago`);

const REASONS = {
  timeout: "the learner took too long",
  error: "the learner failed",
  hanging: "the learner does not return",
  "compiling": "kernels were being compiled",
  store: "the store was unreachable",
};

const EXPOSURES = {
  shadow: "Users see the baseline ranking. The ranker learns in the background.",
  bounded: "Users see the learned ranking. Each item stays within a few positions of the baseline ranking.",
  full: "Users see the learned ranking.",
};

// Attributes of a control; disabled with `reason` as its title if there is a reason.
const permitted = (reason, attributes) => (reason ? { ...attributes, disabled: true, title: reason } : attributes);
