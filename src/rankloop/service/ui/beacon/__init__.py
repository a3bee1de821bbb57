"""`/rankloop.js`: the script with which a shop's page reports clicks and views; see `rankloop.js` beside this file."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib import resources
from typing import Final


def _short(source: str) -> str:
    """Without lines of comment and without white space that only people need. No string of ours has any of it."""
    lines = (line.strip() for line in source.splitlines())
    code = "".join(line for line in lines if line and not line.startswith("//"))
    return re.sub(r"\s*(=>|==|>=|&&|\|\||\|\|=|[{}()\[\]:;,=<>?+*/&|!-])\s*", r"\1", code)


SCRIPT: Final = _short(resources.files("rankloop.service.ui.beacon").joinpath("rankloop.js").read_text("utf-8"))
ETAG: Final = f'"{sha256(SCRIPT.encode()).hexdigest()[:16]}"'
PATH: Final = "/rankloop.js"
