"""Which state of a ranker a change is meant for: ETags and `If-Match`, and demotions that nobody undoes unawares."""

from __future__ import annotations

import time
from hashlib import blake2b
from typing import Any

import msgspec

from rankloop.service.errors import Changed, Demoted
from rankloop.service.storage.admin import Ranker
from rankloop.wire.experiments import Evidence
from rankloop.wire.rankers import Guardrail, Spec

_OTHERS = ("serving", "learning", "what was learned (rollback or reset)")


def etag(row: Ranker) -> str:
    """The revision, which decides, and two digits for each part: whoever comes with an old one can be told what has
    changed since, whichever process is asked, and nothing has to be remembered."""
    parts = "".join(blake2b(msgspec.json.encode(value), digest_size=1).hexdigest() for value in _parts(row).values())
    return f'"{row.revision}-{parts}"'


def known(row: Ranker | None, name: str, if_match: str | None) -> bool:
    """Whether `If-Match` names the ranker as it is; refuses if it names another state. `*` says only that there is one.

    A proxy that packs answers makes ETags weak (W/); they are taken all the same, for they name a revision, not bytes.
    """
    if if_match is None:
        return False
    if row is None:
        raise Changed(f"If-Match was sent, but there is no ranker {name!r}; it has been deleted, or was never made")
    tags = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    if "*" in tags:
        return False
    if etag(row) in tags:
        return True
    changed = _changes(row, tags[0])
    told = ", ".join(changed) if changed else "something that belongs to it, such as an experiment"
    raise Changed(
        f"ranker {name!r} has changed since the state that If-Match names: {told}; look at it with GET, and send "
        f"If-Match: {etag(row)} to change it as it is now"
    )


def require_acknowledged(row: Ranker, wanted: Spec, evidence: Evidence | None, acknowledged: bool) -> None:
    """Refuse to put a ranker up that its guardrail has put down, unless whoever asks says that he knows."""
    if evidence is None or wanted.exposure == "shadow" or acknowledged:
        return
    low, high = evidence.interval
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(evidence.when))
    raise Demoted(
        f"the guardrail of ranker {row.name!r} has put it into shadow on {when}: users preferred your order by "
        f"{-evidence.preference:.2f} ({-high:.2f} to {-low:.2f}) over {evidence.lists} lists. This call would put it "
        f"to {wanted.exposure!r} again, so nothing was changed. To try anew add ?acknowledge_demotion=true, or "
        f'If-Match: {etag(row)}; to change something else, PATCH it, or send "exposure": "shadow"'
    )


def difference(before: Spec, after: Spec) -> str:
    """What a change of a spec was, in a line; what is long is only named."""
    said = []
    for field in Spec.__struct_fields__:
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            long = isinstance(old, list | dict) or isinstance(new, list | dict)
            said.append(field if long else f"{field} {_word(old)} -> {_word(new)}")
    return ", ".join(said)


def _parts(row: Ranker) -> dict[str, Any]:
    """All that a change may be about; `_OTHERS` in their order at the end."""
    own = {field: getattr(row.spec, field) for field in Spec.__struct_fields__}
    return {**own, **dict(zip(_OTHERS, (row.serving, row.learning, row.generation), strict=True))}


def _changes(row: Ranker, tag: str) -> list[str]:
    """What is other than it was when `tag` was told, as far as the tag says."""
    now, parts = etag(row).strip('"').partition("-")[2], _parts(row)
    then = tag.strip('"').partition("-")[2]
    if len(then) != len(now):
        return [f"{tag} is no ETag of it"]
    found = []
    for i, (name, value) in enumerate(parts.items()):
        if then[2 * i : 2 * i + 2] != now[2 * i : 2 * i + 2]:
            plain = not isinstance(value, list | dict) and name != _OTHERS[2]
            found.append(f"{name} is {_served(name, value)} now" if plain else name)
    return found


def _served(name: str, value: Any) -> str:
    if name == "serving":
        return "live" if value is None else f"v{value}"
    if name == "learning":
        return "on" if value else "paused"
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, Guardrail):
        return f"share {value.share:g} alpha {value.alpha:g}"
    return "off" if value is None else str(value)
