"""The status page: one self-contained file, as `/docs` is. It asks the same API that everyone can; see `app.js`."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib import resources
from string import Template
from typing import Final

from rankloop import __version__

_FILES = resources.files("rankloop.service.ui.status")
SCRIPTS: Final = (
    "dom.js",
    "charts.js",
    "tables.js",
    "lists.js",
    "proof.js",
    "actions.js",
    "app.js",
)  # in this order, as one


def _read(name: str) -> str:
    return _FILES.joinpath(name).read_text("utf-8")


_STYLE = _read("page.css")
_SCRIPT = '"use strict";\n' + "\n".join(_read(name) for name in SCRIPTS)
_HASHES = [b64encode(sha256(text.encode()).digest()).decode() for text in (_STYLE, _SCRIPT)]
PAGE: Final = Template(_read("page.html")).substitute(style=_STYLE, script=_SCRIPT, version=__version__)
# Nothing but this style and this script, nobody but this service: text from a log could neither run nor load anything.
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASHES[0]}'; script-src 'sha256-{_HASHES[1]}'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
