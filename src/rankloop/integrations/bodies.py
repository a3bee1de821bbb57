"""Bodies with one event or many: an object, an array of them, or an object a line."""

from __future__ import annotations

import msgspec

_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


def raw_events(body: bytes) -> list[bytes]:
    """The events of a body, not yet looked into.

    >>> [len(raw_events(body)) for body in (b'{}', b'[{}, {}]', b'{}\\n{}\\n', b'{"a":\\n1}')]
    [1, 2, 2, 1]
    """
    text = body.strip()
    if text[:1] == b"[":
        return [bytes(one) for one in _array(text)]
    lines = [line for line in text.split(b"\n") if line.strip()]
    if len(lines) > 1 and all(line.strip()[:1] == b"{" and line.strip()[-1:] == b"}" for line in lines):
        return lines
    return [text] if text else []
