"""One request to a service as steps, without a network: retries, errors, and the fallback to the baseline ranking.

A request is sent again with growing, random pauses. That is harmless, because a rank request has a request_id, an event
an event_id and an operator action an Idempotency-Key.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import msgspec
from msgspec import UNSET

from rankloop.core.errors import InvalidInput, InvalidParameter, RankloopError
from rankloop.wire.basics import ItemId, Problem
from rankloop.wire.calls import RankAnswer, RankColumns, RankedItem, RankRequest

FIRST_PAUSE = 0.1  # seconds; the pause after try n is drawn from 0 … FIRST_PAUSE * 2**n; a tenth under a deadline
LONGEST_PAUSE = 5.0  # also of what a Retry-After may ask for
_jitter = random.Random()  # of its own, so that the global generator of the program is left alone
TRANSIENT_STATUS = (429, 502, 503, 504)  # overloaded or temporarily away
UNTOUCHED = (429, 503)  # the request was not carried out

T = TypeVar("T")


class ServiceError(RankloopError):
    """The service refused a request: HTTP `status`, `error` for programs, `message` for people, `request_id`."""

    def __init__(self, text: str, status: int = 0, error: str = "", message: str = "", request_id: str = "") -> None:
        super().__init__(text)
        self.status, self.error, self.message, self.request_id = status, error, message or text, request_id


class ServiceUnavailable(ServiceError):
    """No attempt succeeded. `status` is 429, 502, 503 or 504, or 0 without any answer."""


class RejectedEvent(ServiceError):
    """The service rejected the one event that was sent; `message` is the reason. Status 422, error "rejected"."""


class Call(NamedTuple):
    """A request as data."""

    method: str
    path: str
    body: bytes | None = None
    if_match: str | None = None  # the header of that name
    key: str | None = None  # Idempotency-Key: however often the call is sent, it is carried out once
    end: float | None = None  # of `time.monotonic`: when all tries and pauses have to be over


class Reply(NamedTuple):
    """A response; status 0 if none arrived, then `lost` has the reason."""

    status: int
    body: bytes = b""
    retry_after: str = ""
    lost: str = ""
    arrived: bool = True  # False: the request did not reach the service
    late: bool = False  # it got no answer in time


# A float is a pause in seconds; a function is work that may wait for a disk.
Steps: TypeAlias = Generator["Call | float | Callable[[], None]", "Reply | None", T]


class Exchange:
    """Sends requests with retries."""

    def __init__(self, url: str, retries: int) -> None:
        self.url, self.retries = checked_url(url), retries
        if not isinstance(retries, int) or retries < 0:
            raise InvalidParameter(f"retries is {retries!r}; it must be a whole number of at least 0")

    def ask(self, answer: type[T], method: str, path: str, body: Any = None) -> Steps[T]:
        """Send a request that may be repeated, and decode its response."""
        return (yield from self.asked(answer, Call(method, path, encoded(body))))

    def act(self, answer: type[T], method: str, path: str, body: Any = None, if_match: str | None = None) -> Steps[T]:
        """Send an operator action with an idempotency key, so that it is carried out once."""
        return (yield from self.asked(answer, Call(method, path, encoded(body), if_match, uuid4().hex)))

    def asked(self, answer: type[T], call: Call) -> Steps[T]:
        """Send a call and decode its response."""
        reply = yield from self.exchange(call)
        try:
            return msgspec.json.decode(reply.body or b"null", type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            where = f"{call.method} {self.url}{call.path}"
            text = f"{where}: the response is not from rankloop ({error}); check the URL and the versions"
            raise ServiceError(text, reply.status, "strange-answer") from None

    def exchange(self, call: Call) -> Steps[Reply]:
        """Send, with retries, until there is a response or an error."""
        for n in range(self.retries + 1):
            reply = (yield call) or Reply(0)
            if 200 <= reply.status < 300:
                return reply
            if reply.status and reply.status not in TRANSIENT_STATUS:
                raise self._refusal(call, reply)
            if n == self.retries:
                break
            wait = pause(n, reply, FIRST_PAUSE if call.end is None else FIRST_PAUSE / 10)
            if call.end is not None and time.monotonic() + wait >= call.end:
                break
            yield wait
        problem = problem_of(reply)
        why = f"{reply.status} {problem.message}".strip() if reply.status else reply.lost
        tries = f"{n + 1} tries" if n else "1 try"
        remedy = "check that the service is running at this URL" if not reply.status else "try again later"
        if call.key is not None and reply.arrived and reply.status not in UNTOUCHED:
            remedy = "it may have been carried out: check before you send it again"
        text = f"{call.method} {self.url}{call.path}: {why} ({tries}); {remedy}"
        error = problem.error or ("timeout" if reply.late else "unreachable")
        raise ServiceUnavailable(text, reply.status, error, problem.message, problem.request_id)

    def _refusal(self, call: Call, reply: Reply) -> ServiceError:
        problem = problem_of(reply)
        said = problem.message or "no reason given; check that this is the URL of a rankloop service"
        remedy = "; give the service's key: Client(url, key=...)" if reply.status in (401, 403) else ""
        text = f"{call.method} {self.url}{call.path}: {reply.status} {problem.error}".rstrip() + f": {said}{remedy}"
        return ServiceError(text, reply.status, problem.error or f"http-{reply.status}", said, problem.request_id)


def pause(n: int, reply: Reply, first: float) -> float:
    """Seconds after try n, counted from 0: what the service asks for, and a random time that grows."""
    asked = min(retry_after(reply.retry_after), LONGEST_PAUSE)
    return asked + _jitter.uniform(0.0, min(first * 2 ** min(n, 20), LONGEST_PAUSE))


def encoded(body: Any) -> bytes | None:
    """A body as JSON."""
    return None if body is None else msgspec.json.encode(body)


def problem_of(reply: Reply) -> Problem:
    """The error in a response; empty if it has another form."""
    try:
        return msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Problem("", "")


def checked_url(url: str) -> str:
    """A URL without a slash at its end."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        fine = False
    if not fine:
        raise InvalidParameter(f"url is {url!r}; give one such as http://127.0.0.1:8080 or https://rank.example.com")
    return url.rstrip("/")


def segment(noun: str, name: str) -> str:
    """A name as one piece of a path."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        raise InvalidInput(f"{noun} is {name!r}; give a name of at least one character")
    return quote(name, safe="")


def ranker_path(name: str) -> str:
    """The path of a ranker."""
    return f"/v1/rankers/{segment('ranker', name)}"


def retry_after(text: str) -> float:
    """Seconds of a Retry-After header, a number or a date.

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


BREAK_AFTER = 5  # calls that failed in a row
BREAK_SECONDS = 1.0  # then one call per so many seconds is sent, until one succeeds
TRANSIENT = (408, 425, 429)  # refusals of the moment; every other 4xx is an error of the caller


class Breaker:
    """Skips calls after several have failed in a row, so that a frozen service does not delay every page."""

    def __init__(self) -> None:
        self._failures, self._next_try, self._cause = 0, 0.0, ""

    def skipped(self, now: float) -> str | None:
        """The reason for not sending a call at this time, or None: then the caller sends it."""
        if self._failures < BREAK_AFTER:
            return None
        if now < self._next_try:
            return f"skipped after {self._cause}"
        self._next_try = now + BREAK_SECONDS  # this call tries, the others wait for its result
        return None

    def failed(self, cause: str, now: float) -> None:
        """Count a call that got no usable answer."""
        self._failures, self._cause, self._next_try = self._failures + 1, cause, now + BREAK_SECONDS

    def answered(self) -> None:
        """The service answers: send every call."""
        self._failures = 0


def fallback_reason(error: ServiceError) -> str | None:
    """The reason for a fallback, or None for an error that only the caller can fix."""
    if error.status == 0:
        return error.error
    if error.error == "strange-answer":
        return "invalid answer"
    return f"service error {error.status}" if error.status >= 500 or error.status in TRANSIENT else None


def baseline(name: str, request: RankRequest | RankColumns, reason: str, fallback: bool = True) -> RankAnswer:
    """The candidates of a request in the given order, under the rules of the request except its quotas."""
    ids = request.ids if isinstance(request, RankColumns) else [one.id for one in request.candidates]
    order = _ordered(ids, request.k, request.pinned, request.excluded)
    items = [RankedItem(item, position, None) for position, item in enumerate(order, 1)]
    token = None if request.token else UNSET
    return RankAnswer(None, name, "", "shadow", fallback, items, reason, request.request_id, token=token)


def _ordered(ids: list[ItemId], k: int | None, pinned: Mapping[str, int], excluded: Iterable[ItemId]) -> list[ItemId]:
    hidden = set(map(str, excluded))
    free = {str(item): item for item in ids if str(item) not in hidden}
    size = min(k or len(free), len(free))
    at, below = {}, size
    # As the service does: in a ranking that is too short, pins move up to its end.
    for item, position in sorted(pinned.items(), key=lambda pin: -pin[1]):
        if item in free and position <= (k or position) and below > 0:
            below = min(position, below) - 1
            at[below] = free.pop(item)
    rest: Iterator[ItemId] = iter(free.values())
    return [at[place] if place in at else next(rest) for place in range(size)]
