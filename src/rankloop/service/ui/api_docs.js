"use strict";
// Adds "Try it" to the page and opens the route that the address names. The key stays in its field.

const last = {}; // impression_id and token of the last ranking, for the examples of feedback

// JSON with line breaks. Not by JSON.stringify: parsing would round an id above 2**53.
function pretty(text) {
  JSON.parse(text); // throws unless it is JSON
  let depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g);
  return tokens.map((token, at) => {
    if (token === "{" || token === "[") {
      depth += 1;
      return token + (/[}\]]/.test(tokens[at + 1][0]) ? "" : line());
    }
    if (token === "}" || token === "]") {
      depth -= 1;
      return (/^[{[]$/.test(tokens[at - 1]) ? "" : line()) + token;
    }
    return token === "," ? "," + line() : token === ":" ? ": " : token;
  }).join("");
}

async function send(form) {
  const query = new URLSearchParams();
  const headers = new Headers();
  let path = form.dataset.path;
  for (const input of form.querySelectorAll("input")) {
    if (input.dataset.in === "path") path = path.replaceAll(`{${input.name}}`, encodeURIComponent(input.value));
    else if (input.value && input.dataset.in === "query") query.append(input.name, input.value);
    else if (input.value && input.dataset.in === "header") headers.set(input.name, input.value);
  }
  const key = document.getElementById("key").value;
  const [header, before] = form.dataset.key.split(": ");
  if (key && header) headers.set(header, before + key);
  const body = form.querySelector("textarea");
  if (body) headers.set("Content-Type", body.dataset.type);
  const text = body?.value.replaceAll("EVENT_ID", crypto.randomUUID()).replaceAll("IMPRESSION_ID", last.impression_id ?? "IMPRESSION_ID")
    .replaceAll("TOKEN", last.token ?? "TOKEN");
  const started = performance.now();
  const url = String(query) ? `${path}?${query}` : path;
  const answer = await fetch(url, { method: form.dataset.method, headers, body: text });
  const found = await answer.text();
  if (answer.ok && path.endsWith("/rank")) Object.assign(last, JSON.parse(found));
  return [`${answer.status} ${answer.statusText}, ${Math.round(performance.now() - started)} ms`, found];
}

for (const origin of document.querySelectorAll(".origin")) {
  if (location.protocol.startsWith("http")) origin.textContent = location.origin;
}
for (const hidden of document.querySelectorAll(".try, .key")) hidden.hidden = false;
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [button, status, answer] = ["button", "output", "pre"].map((name) => form.querySelector(name));
    button.disabled = true;
    answer.hidden = true;
    try {
      const [line, text] = await send(form);
      status.textContent = line;
      try { answer.textContent = pretty(text); } catch { answer.textContent = text; }
      answer.hidden = !text;
    } catch (error) {
      status.textContent = `Not sent: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
}

function openNamed() {
  const article = document.getElementById(location.hash.slice(1));
  if (!article?.matches("article")) return;
  article.querySelector("details").open = true;
  article.scrollIntoView();
}
addEventListener("hashchange", openNamed);
addEventListener("beforeprint", () => { for (const route of document.querySelectorAll(".route")) route.open = true; });
openNamed();
