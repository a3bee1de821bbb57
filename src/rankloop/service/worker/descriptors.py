"""File descriptors: as many as may be had, and some of them not for callers.

Every connection takes one, and so does every file of the store. Where callers have them all, the store cannot be opened
and leases cannot be kept: others would learn what this process holds, or nobody.
"""

from __future__ import annotations

from contextlib import suppress

try:
    import resource
except ImportError:  # Windows, which counts otherwise
    resource = None  # type: ignore[assignment]

ENOUGH = 65_536  # descriptors; more connections than that are another machine's
KEPT = 256  # for the store (three a thread that reads), the log, the clock


def raise_limit() -> None:
    """Take what the system allows: many shells give 1,024 though far more may be had."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # then what there is must do
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def for_connections() -> int:
    """How many connections leave enough for the rest: all but `KEPT`, or half of them where they are few."""
    soft = ENOUGH if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft < 0:  # no limit at all
        soft = ENOUGH
    return max(soft - KEPT, soft // 2)
