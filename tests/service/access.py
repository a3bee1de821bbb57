"""The table of docs/access.md: which call opens with which key. The tests ask a service whether it is true."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
COLUMNS = ["nothing", "token", "rank", "feedback", "read", "admin"]
_KINDS = {
    ("nothing", "token", "rank", "feedback", "read", "admin"): "none",
    ("token",): "token",
    ("rank", "feedback", "read", "admin"): "any",
    ("rank",): "rank",
    ("feedback",): "feedback",
    ("read", "admin"): "read",
    ("admin",): "admin",
}


def scopes() -> dict[tuple[str, str], str]:
    """(method, path) -> the scope it needs; any: whichever; none: no key; token: that of a list."""
    found = {}
    lines = PAGE.read_text("utf-8").splitlines()
    header = next(line for line in lines if line.startswith("| call |"))
    assert re.findall(r"`(\w+)`|(nothing)", header) == [(c, "") if c != "nothing" else ("", c) for c in COLUMNS]
    for line in lines:
        row = re.match(r"\| `(GET|PUT|PATCH|POST|DELETE) (/\S*)` \|(.*)\|$", line)
        if row is not None:
            ticks = [cell.strip() for cell in row[3].split("|")]
            assert set(ticks) <= {"", "✓"}, line
            opens = tuple(name for name, tick in zip(COLUMNS, ticks, strict=True) if tick)
            assert (row[1], row[2]) not in found, line
            found[row[1], row[2]] = _KINDS[opens]
    return found
