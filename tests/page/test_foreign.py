"""A page of another site, in a real browser on the machine of a service without keys: it can do nothing there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.page.shown import Looker, Served, traffic

pytestmark = pytest.mark.slow

Look = Callable[..., Looker]


# What a page can try: requests that a browser sends without asking first, those that it asks for, an image, a form.
TRIES = """async ([url, name]) => {
  const said = [];
  const plain = {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: "{}"};
  for (const action of ["reset", "pause", "promote"])
    await fetch(`${url}/v1/rankers/${name}/${action}`, plain).catch(() => "the answer is not for it to see, either");
  navigator.sendBeacon(`${url}/v1/rankers/${name}/pause`, "{}");
  for (const [method, path] of [["GET", ""], ["GET", "/impressions"], ["PUT", ""], ["DELETE", ""]])
    try {
      const body = method === "PUT" ? '{"learner": "random"}' : undefined;
      const answer = await fetch(`${url}/v1/rankers/${name}${path}`, {method, body});
      said.push(`${method} ${path} ${answer.status}`);
    } catch { }
  await new Promise(done => {
    const image = new Image(); image.onerror = image.onload = done; image.src = `${url}/v1/rankers/${name}`;
  });
  const frame = document.createElement("iframe"); frame.name = "target"; document.body.append(frame);
  const form = document.createElement("form");
  form.method = "post"; form.action = `${url}/v1/rankers/${name}/pause`; form.enctype = "text/plain";
  form.target = "target"; document.body.append(form);
  await new Promise(done => { frame.onload = done; form.submit(); });
  return said;
}"""


def test_a_page_of_another_site_changes_and_reads_nothing(service: Served, look: Look, elsewhere: str) -> None:
    service.put_ranker("target", window_seconds=60, k=6)
    traffic(service, "target", 10)
    before = service.status("target")
    looker = look(elsewhere)
    looker.expected = ("",)  # the browser tells of every refusal
    assert looker.page.evaluate(TRIES, [f"http://127.0.0.1:{service.port}", "target"]) == []
    after = service.status("target")
    for kept in ("learning", "serving", "spec", "closed_impressions"):
        assert after[kept] == before[kept], kept
    versions = service.ask("GET", "/v1/rankers/target/versions").json
    assert versions == []  # a reset or a promote would have kept one


def test_a_name_that_was_made_to_point_here_opens_nothing(service: Served, look: Look) -> None:
    """As after DNS rebinding: to the browser it is the page's own origin."""
    looker = look(f"http://evil.localhost:{service.port}/")
    looker.expected = ("",)
    assert "foreign-host" in looker.page.content()
    read = "fetch('/v1/rankers').then(answer => answer.status)"
    assert looker.page.evaluate(read) == 403
