"""Addresses and headers of calls: what a client is given, checked and made fit for a request line."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

from rankloop.core.errors import InvalidInput, InvalidParameter


def checked_url(url: str) -> str:
    """Where a service is, without a slash at its end."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        fine = False
    if not fine:
        raise InvalidParameter(f"url is {url!r}; it must be like http://127.0.0.1:8080 or https://rank.example.com")
    return url.rstrip("/")


def segment(noun: str, name: str) -> str:
    """A name as one piece of a path."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise InvalidInput(f"{noun} is {name!r}; it must be a name of at least one letter")
    return quote(name, safe="")


def ranker_path(name: str) -> str:
    """The path of a ranker."""
    return f"/v1/rankers/{segment('ranker', name)}"


def retry_after(text: str) -> float:
    """Seconds that a Retry-After header asks for, as a number or as a date.

    >>> retry_after("2"), retry_after(""), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (2.0, 0.0, 0.0, 0.0)
    """
    try:
        seconds = float(text or 0)
    except ValueError:
        try:
            at = parsedate_to_datetime(text)
        except ValueError:
            return 0.0
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0
