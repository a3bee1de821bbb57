"""A log line for each request that failed or was slow, so that it can be found by its id.

Requests that succeed are counted, not logged: a line each would cost more than ranking does. A path is logged as far as
its route is known, with the names of rankers and catalogs. Ids of users, items and events are masked, and so is
everything that belongs to no route.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from itertools import takewhile
from urllib.parse import unquote

from rankloop.service.api.routes import FOREIGN, ROUTES
from rankloop.service.observability.tracing import Trace
from rankloop.wire.basics import NAME

MOST = 50  # lines a second and process; whoever sends rubbish without end must not fill a disk with it
_OFTEN = "/readyz"  # it says no for a while at every start, to someone who asks every second
_TEMPLATES = [path for route in (*ROUTES, *(one for some in FOREIGN.values() for one in some)) for path in route.paths]
_LITERALS = frozenset(part for path in _TEMPLATES for part in path.split("/") if not part.startswith("{"))
_BARE_NAME = NAME[1:].partition("$")[0]
_LOGGED = {"{name:str}": _BARE_NAME, "{catalog:str}": _BARE_NAME, "{number:int}": "[0-9]{1,10}"}
_PRIVATE = re.compile(r"/(?:users|items)/(.+)", re.DOTALL).search
_keys = re.compile(r"rl_[A-Za-z0-9_-]{16,}").sub  # put where it does not belong, by mistake
logger = logging.getLogger("rankloop")


class RequestLog:
    """Tells of requests.

    Parameters
    ----------
    slow_seconds
        One that took longer is told of though it went well; 0: none is.
    clock
        In seconds; tests move it.
    """

    def __init__(self, slow_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._slow = slow_seconds or float("inf")
        self._clock = clock
        self._second, self._told, self._left_out = 0, 0, 0

    def tell(self, method: str, path: str, trace: Trace) -> None:
        """Tell of a request that has been answered, if it is worth it."""
        seconds = time.perf_counter() - trace.began
        if trace.status < 400 and seconds <= self._slow:
            return
        if path == _OFTEN or not self._may():
            return
        where = _written(path)
        fields = {"method": method, "path": where, "status": trace.status, "milliseconds": round(seconds * 1e3, 1)}
        if trace.error:
            fields["error"] = trace.error
        what = trace.error or "failed" if trace.status >= 400 else "slow" if trace.status else "never answered"
        text = f"{method} {where}: {trace.status} {what}, {fields['milliseconds']} ms"
        logger.log(level(trace.status), "%s", text, extra={"fields": fields})

    def _may(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            left_out, self._second, self._told, self._left_out = self._left_out, second, 0, 0
            if left_out:
                logger.warning("%d further requests failed or were slow in a second, and have no line", left_out)
        self._told += 1
        self._left_out += self._told > MOST
        return self._told <= MOST


def level(status: int) -> int:
    """How loud: a bug is an error; what an operator may have to see to is a warning; a caller's slip is told.

    >>> [logging.getLevelName(level(status)) for status in (500, 503, 401, 422)]
    ['ERROR', 'WARNING', 'WARNING', 'INFO']
    """
    if status == 500:
        return logging.ERROR
    return logging.INFO if 400 <= status < 500 and status not in (401, 403, 429) else logging.WARNING


def private_part(path: str) -> str:
    """The id of a user or an item in a path, which log lines about its request must not contain.

    >>> private_part("/v1/catalogs/shop/users/ann"), private_part("/v1/rankers/shop")
    ('ann', '')
    """
    found = _PRIVATE(path)
    return unquote(found[1]) if found else ""


def _written(path: str) -> str:
    """A path as it may be logged.

    >>> _written("/v1/rankers/shop/rank"), _written("/v1/users/ann/b"), _written("/v1/catalogs/c/users/ann")
    ('/v1/rankers/shop/rank', '/v1/users/…', '/v1/catalogs/c/users/…')
    >>> _written("/v1/user/ann"), _written("/v1/rankers/rl_0123456789abcdefghij/rank")
    ('/v1/…', '/v1/rankers/rl_…/rank')
    """
    for matched in _ROUTES:
        if found := matched(path):
            for i in range(found.re.groups, 0, -1):
                path = f"{path[: found.start(i)]}…{path[found.end(i) :]}"
            return _keys("rl_…", path)
    parts = path.split("/")
    known = list(takewhile(_LITERALS.__contains__, parts))
    return "/".join(known if len(known) == len(parts) else [*known, "…"])


def _matcher(template: str) -> Callable[[str], re.Match[str] | None]:
    """Matches the paths of a route; what must not be logged is a group."""
    parts = (
        _LOGGED.get(part, "(.+)" if part.endswith(":path}") else "([^/]+)") if part.startswith("{") else re.escape(part)
        for part in template.split("/")
    )
    return re.compile("/".join(parts), re.DOTALL).fullmatch


_ROUTES = [_matcher(one) for one in sorted(_TEMPLATES, key=lambda one: one.count("{"))]  # the most literal first
