"use strict";
const service = document.currentScript.dataset.service;
const $ = id => document.getElementById(id);
const make = (tag, text = "", name = "") => Object.assign(document.createElement(tag), {textContent: text, className: name});
const ask = async path => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail || `the page's server answered ${answer.status}`);
  return answer.json();
};
let shown = null;    // the list on the screen: what came with it, and who watches it
let before = {};     // query: the names that were shown last time, to tell what has moved since
let state = {};

// 6. Clicks and views: rankloop.js reports them with the token of the list, and needs to know nothing else.
const watch = found => {
  if (found.token) found.watching = rankloop.watch($("learned"), found.token);
};
// The visit is over: what was clicked is learned now, and not when the ranker's window ends.
const finish = found => {
  if (!found?.token || found.over) return;
  found.over = true;
  found.watching.stop();
  const body = JSON.stringify({token: found.token, event_id: "end", final: true});
  return fetch(`${service}/v1/beacon`, {method: "POST", body, keepalive: true}).catch(() => {});
};

// What lifts an item above the others of its list, or holds it down: its features' shares against the list's mean.
const why = (item, mean, moved) => {
  const sign = moved < 0 ? -1 : 1;
  const parts = Object.entries(item.why ?? {}).map(([name, value]) => [name, value - mean[name]]);
  const best = parts.filter(([, value]) => sign * value > .02).sort((a, b) => sign * (b[1] - a[1])).slice(0, 3);
  const words = {"baseline": "the engine’s ranking", "this query": "clicks on this query"};
  return best.map(([name, value]) => `${words[name] ?? name} ${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(2)}`).join(", ");
};

const row = (item, extra) => {
  const line = make("li");
  line.dataset.name = item.name;
  const link = make("a", item.name);
  link.href = `#${encodeURIComponent(item.name)}`;
  link.append(" ", make("span", item.kind, "kind"));
  line.append(link, extra ?? make("span"), make("p", item.summary || "(not documented)"));
  return line;
};

const draw = found => {
  const old = new Map([...$("learned").children].map(line => [line.dataset.name, line.getBoundingClientRect().top]));
  const last = before[found.query] ?? [];
  const mean = {};
  for (const {why} of found.learned) for (const name in why) mean[name] = (mean[name] ?? 0) + why[name] / found.learned.length;
  const moves = [];
  $("learned").replaceChildren(...found.learned.map((item, i) => {
    const moved = item.was - (i + 1);
    const text = moved ? `${moved > 0 ? "↑" : "↓"} ${Math.abs(moved)}` : "=";
    const badge = make("span", text, `moved ${moved > 0 ? "up" : moved < 0 ? "down" : ""}`);
    badge.title = moved ? `${moved > 0 ? "up" : "down"} from position ${item.was} of the engine` : "same position as the engine";
    badge.setAttribute("aria-label", badge.title);
    const line = row(item, badge);
    line.dataset.rankloopId = item.name;  // rankloop.js knows items by this
    const reason = why(item, mean, moved);
    if (reason) line.append(make("p", `why ${moved < 0 ? "below" : "above"} others: ${reason}`, "why"));
    const was = last.indexOf(item.name) + 1;
    if (last.length && was !== i + 1) {
      line.classList.add("now");
      if (was > i + 1 || !was) moves.push(`${item.name} went up from ${was || "below"} to ${i + 1}`);
    }
    return line;
  }));
  $("engine").replaceChildren(...found.engine.map(item => row(item)));
  const notes = [];
  if (!found.learned.length) notes.push(`Nothing found for “${found.query}”.`);
  if (found.instead) notes.push(`This is the engine's ranking: ${found.instead}.`);
  if (found.mixed) notes.push("This ranking is interleaved with the engine's, to measure which one is better.");
  if (last.length) notes.push(moves.length ? `Since you last searched this: ${moves.slice(0, 2).join("; ")}.` : "Nothing has moved since you last searched this.");
  $("said").textContent = notes.join(" ");
  $("lists").hidden = !found.learned.length;
  $("legend").hidden = !document.querySelector("#learned .now");
  before[found.query] = found.learned.map(item => item.name);
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches)
    for (const line of $("learned").children) {
      const from = old.get(line.dataset.name), to = line.getBoundingClientRect().top;
      if (from !== undefined && from !== to) line.animate([{transform: `translateY(${from - to}px)`}, {transform: "none"}], 400);
    }
};

let newest = 0;
const search = async query => {
  const number = ++newest;
  await finish(shown);
  try {
    const found = await ask(`/search?q=${encodeURIComponent(query)}`);
    if (number !== newest) return;
    shown = found;
    draw(found);
    watch(found);
  } catch (error) {
    if (number === newest) $("said").textContent = `That did not work: ${error.message}. Is “python -m examples.search” still running?`;
  }
};

const open = async name => {
  try {
    const entry = await ask(`/entry?name=${encodeURIComponent(name)}`);
    $("entry-name").textContent = entry.name;
    $("entry-file").textContent = `${entry.file}, line ${entry.line}`;
    $("entry-text").textContent = entry.text || "(not documented)";
    $("entry-source").textContent = entry.source;
    if (!$("entry").open) $("entry").showModal();
  } catch (error) {
    $("said").textContent = `${name} cannot be shown: ${error.message}`;
  }
};

const tell = found => {
  const [done, of] = found.read, trial = found.trial, mixed = trial.lists;
  const parts = [`Learned from ${found.learned} ${found.learned === 1 ? "impression" : "impressions"}.`];
  if (done < of) parts.push(`Reading source: ${done.toLocaleString()} of ${of.toLocaleString()} files.`);
  if (!found.ready) parts.push("Kernels are being compiled. Until then, rankings are the engine's.");
  if (found.name === "simulated") parts.push("Simulated users search here.");
  $("state").textContent = parts.join(" ");
  const number = value => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
  const sure = `${number(trial.preference ?? 0)}, 95% interval ${number(trial.interval[0])} to ${number(trial.interval[1])}, ${mixed} interleaved rankings`;
  const needed = trial.lists_needed ? `, about ${trial.lists_needed.toLocaleString()} more are needed` : "";
  $("proof").textContent = trial.verdict === "better" ? `Clicks prefer the learned ranking (${sure}).`
    : trial.verdict === "worse" ? `Clicks prefer the engine's ranking (${sure}).`
    : mixed ? `No significant difference yet: ${mixed} interleaved ${mixed === 1 ? "ranking" : "rankings"} so far${needed}.`
    : "One ranking in five is interleaved from both. Its clicks will show here which one is better.";
};
const look = async () => {
  try { if (!document.hidden) tell(state = await ask("/state")); } catch { /* the next look may work */ }
};

$("form").addEventListener("submit", event => {
  event.preventDefault();
  const query = $("box").value.trim();
  if (!query) return;
  history.pushState(null, "", `?q=${encodeURIComponent(query)}`);
  search(query);
});
$("lists").addEventListener("click", event => {
  const link = event.target.closest("a");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    open(link.closest("li").dataset.name);
  }
});
// Closing what was opened ends the visit. Once it is learned, the same query shows what the click has changed.
$("entry").addEventListener("close", async () => {
  if (!shown) return;
  const learned = state.learned ?? 0, query = shown.query;
  await finish(shown);
  for (let i = 0; i < 20 && (state.learned ?? 0) <= learned; i++) {
    await new Promise(done => setTimeout(done, 100));
    await look();
  }
  if (shown.query === query && !$("entry").open) {
    const at = document.activeElement?.closest?.("li")?.dataset.name;
    await search(query);
    [...$("learned").children].find(line => line.dataset.name === at)?.querySelector("a").focus();
  }
});
addEventListener("keydown", event => {
  if ($("entry").open || event.ctrlKey || event.metaKey || event.altKey) return;
  const links = [...$("learned").querySelectorAll("a")], at = links.indexOf(document.activeElement);
  if (event.key === "/" && document.activeElement !== $("box")) event.preventDefault(), $("box").select();
  else if (event.key === "ArrowDown" && links.length) event.preventDefault(), links[Math.min(at + 1, links.length - 1)].focus();
  else if (event.key === "ArrowUp" && at >= 0) event.preventDefault(), (at ? links[at - 1] : $("box")).focus();
});
addEventListener("pagehide", () => finish(shown));
const go = () => {
  const query = new URLSearchParams(location.search).get("q") ?? "";
  $("box").value = query;
  if (query) search(query);
  if (location.hash) open(decodeURIComponent(location.hash.slice(1)));
};
addEventListener("popstate", go);
addEventListener("pageshow", event => event.persisted && go());
look();
setInterval(look, 2000);
go();
