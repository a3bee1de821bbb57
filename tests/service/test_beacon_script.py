"""`/rankloop.js` as it is served: small, kept by caches, open to every page."""

from __future__ import annotations

import re
from pathlib import Path

from rankloop.service.ui import beacon
from tests.service.app_fixtures import Service, service

__all__ = ["service"]  # a fixture


def test_the_script_is_small_and_may_be_kept_and_embedded(service: Service) -> None:
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    found = service.http.get("/rankloop.js", headers=foreign)
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/javascript")
    assert found.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "max-age" in found.headers["cache-control"]
    assert len(found.content) < 2000
    assert "//" not in found.text, "no comments"
    again = service.http.get("/rankloop.js", headers={"if-none-match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert service.http.get("/v1/rankers", headers=foreign).status_code == 403, "nothing else is for every page"


def test_shortening_leaves_what_is_quoted_alone() -> None:
    """Else the source would say one thing and the script another."""
    source = (Path(beacon.__file__).parent / "rankloop.js").read_text("utf-8")
    code = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("//"))
    quoted = re.findall(r"\"[^\"\n]*\"|`[^`\n]*`", code)
    assert len(quoted) > 10
    assert re.findall(r"\"[^\"\n]*\"|`[^`\n]*`", beacon.SCRIPT) == quoted
