"""A line for each request that failed or was slow, so that what a caller complains of can be found by its id.

Requests that went well are counted, not told: a line each would cost more than ranking does.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from rankloop.service.tracing import Trace

MOST = 50  # lines a second and process; whoever sends rubbish without end must not fill a disk with it
_OFTEN = "/readyz"  # it says no for a while at every start, to someone who asks every second
_USERS = "/v1/users/"  # what follows is someone's name
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


def _written(path: str) -> str:
    """A path as it may stand in a line: in one line, not too long, without anyone's name.

    >>> _written("/v1/users/ann"), _written("/a\\nINFO all is well"), _written("/rl_0123456789abcdefghij/rank")
    ('/v1/users/…', '/a\\\\nINFO all is well', '/rl_…/rank')
    """
    if path.startswith(_USERS):
        return f"{_USERS}…"
    return _keys("rl_…", path[:200].encode("unicode_escape").decode("ascii"))
