"""Settings of a service: from the command line, else from the environment (RANKLOOP_STORE, RANKLOOP_PORT, …)."""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rankloop.core.errors import InvalidParameter

SCOPES = ("rank", "feedback", "read", "admin")
CHOICES = {
    "durability": ("feedback", "everything"),
    "learn_in": ("process", "thread"),
    "log_format": ("plain", "json"),
}
PREFIX = "RANKLOOP_"
OF_OTHERS = {
    "RANKLOOP_KERNELS",
    "RANKLOOP_CACHE",
    "RANKLOOP_ALLOW",
    "RANKLOOP_NETWORKS",
    "RANKLOOP_KEY",
}
ADAPTERS = ("metarank", "personalizer", "ubi")


YEAR = 366 * 86400.0  # seconds; the longest that anything is waited for
HOUR_MS = 3_600_000.0
MANY = 10**9  # rows, events or columns that a limit may allow


class Range(NamedTuple):
    """The values of a number."""

    least: float
    most: float
    zero: bool = False  # 0 is allowed, too, for no limit or never


def _setting(default: Any, text: str, least: float = 0, most: float = 0, zero: bool = False) -> Any:
    return field(default=default, metadata={"help": text, "range": Range(least, most, zero)})


@dataclass(frozen=True)
class Settings:
    """The settings of a service process; `metadata` has the help text and the range of each."""

    store: str = _setting("rankloop.db", "a file (SQLite) or a postgresql:// URL")
    host: str = _setting("127.0.0.1", "address to listen on; anything but loopback needs a key")
    port: int = _setting(8080, "port to listen on; 0 takes a free one", 0, 65535)
    workers: int = _setting(1, "ranking workers; they share the port", 1, 1024)
    keys: str = _setting("", "API keys, comma separated: token:scope+scope (scopes: rank, feedback, read, admin)")
    hosts: str = _setting("", "without keys: further host names, comma separated, that requests may name")
    origins: str = _setting("", "further origins, comma separated, whose pages may call from a browser")
    adapters: str = _setting(",".join(ADAPTERS), "other systems, comma separated, whose paths are served")
    learn: bool = _setting(True, "whether this machine's processes may hold leases and learn")
    max_body_bytes: int = _setting(8 * 2**20, "largest request body", 1, 2**40)
    max_header_bytes: int = _setting(32 * 2**10, "largest head of a request, all its headers together", 1, 2**30)
    request_seconds: float = _setting(30.0, "time for a request to arrive, and for a client to read on", 0.1, YEAR)
    idle_seconds: int = _setting(75, "how long an idle connection is kept", 1, YEAR)
    max_connections: int = _setting(0, "connections per process; 0: as many as descriptors allow", 1, MANY, zero=True)
    max_candidates: int = _setting(1000, "candidates per request", 1, MANY)
    max_features: int = _setting(4096, "features per ranker", 1, MANY)
    max_width: int = _setting(1_000_000, "hashed columns per ranker; 16 bytes each per process", 1, 2**31 - 1)
    max_events: int = _setting(1000, "feedback events, or imported impressions, per call", 1, MANY)
    beacon_events: int = _setting(100, "events per token that a browser may send to one process", 1, MANY)
    catalog_items: int = _setting(2_000_000, "items, and users, of a catalog", 1, MANY)
    catalog_bytes: int = _setting(4 * 2**30, "memory for the items of a catalog in a ranking worker", 1, 2**50)
    catalog_item_bytes: int = _setting(64 * 2**10, "largest item of a catalog, as JSON", 1, 2**30)
    catalog_lines: int = _setting(10_000, "items, users or ids of a catalog per call", 1, MANY)
    counter_keys: int = _setting(100_000, "items, brands, users, … per window of a ranker's counters", 1, MANY)
    snapshot_seconds: float = _setting(5.0, "how often what was learned is saved", 0.01, YEAR)
    refresh_seconds: float = _setting(1.0, "how often a process looks for changes of other machines", 0.01, YEAR)
    version_seconds: float = _setting(3600.0, "how often a version is kept, if anything was learned", 0, YEAR)
    keep_versions: int = _setting(24, "how many of those are kept; versions made on request stay", 0, MANY)
    lease_seconds: float = _setting(3.0, "a learning worker silent for this long is replaced", 0.1, YEAR)
    learn_seconds: float = _setting(30.0, "a learner slower than this on one outcome hangs, and skips it", 0.1, YEAR)
    learn_in: str = _setting("process", "process: a learning worker of its own; thread: none")
    watchdog_seconds: float = _setting(15.0, "a process that stalls this long is replaced; 0: never", 0.5, YEAR, True)
    retention_days: float = _setting(30.0, "age at which impressions and events are deleted; 0: never", 0, 36_600)
    archive: str = _setting("", "a folder for outcomes that are exported before they are deleted by age")
    durability: str = _setting("feedback", "what is on disk before it is acknowledged: feedback, or everything")
    feedback_timeout_ms: float = _setting(4000.0, "time for the store to take feedback before a 503", 1, HOUR_MS)
    audit_days: float = _setting(365.0, "age at which audit entries are deleted; 0: never", 0, 36_600)
    store_timeout_ms: float = _setting(1000.0, "time for the store before the baseline ranking is shown", 1, HOUR_MS)
    webhook: str = _setting("", "a URL that gets a POST when a guardrail puts a ranker into shadow")
    webhook_secret: str = _setting("", "key of the HMAC-SHA256 signature in X-Rankloop-Signature")
    compile_seconds: float = _setting(300.0, "how long /readyz waits at start for kernel compilation", 0, YEAR)
    notice_seconds: float = _setting(0.0, "how long /readyz fails after SIGTERM before the listener closes", 0, YEAR)
    drain_seconds: float = _setting(10.0, "how long requests in flight may take after SIGTERM", 0, YEAR)
    log_format: str = _setting("plain", "format of log lines: plain for people, json for programs")
    slow_seconds: float = _setting(1.0, "a request slower than this is logged; 0: never", 0, YEAR)

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            value, (least, most, zero) = getattr(self, entry.name), entry.metadata["range"]
            if entry.type in ("int", "float"):
                number = isinstance(value, int if entry.type == "int" else int | float) and not isinstance(value, bool)
                if not number or not (least <= value <= most or (zero and value == 0)):
                    kind = f"{'0, or ' * zero}{'an integer' if entry.type == 'int' else 'a number'}"
                    raise InvalidParameter(
                        f"setting {entry.name} is {value!r}; give {kind} from {least:,.15g} to {most:,.15g}"
                    )
            elif entry.name in CHOICES and value not in CHOICES[entry.name]:
                choices = " or ".join(CHOICES[entry.name])
                raise InvalidParameter(f"setting {entry.name} is {value!r}; give {choices}")
        if self.archive and find_spec("pyarrow") is None:
            raise InvalidParameter("setting archive needs pyarrow; pip install 'rankloop[archive]', or leave it empty")
        strange = sorted(listed(self.adapters).difference(ADAPTERS))
        if strange:
            raise InvalidParameter(f"setting adapters has {strange[0]!r}; give some of {', '.join(ADAPTERS)}, or none")
        if self.webhook and not _is_url(self.webhook):  # not shown: it may hold a secret
            raise InvalidParameter("setting webhook is not a URL like https://example.com/hook; give one, or none")
        self.parsed_keys()

    @property
    def beat_seconds(self) -> float:
        """How often a process sends a heartbeat and looks for changes."""
        return min(self.refresh_seconds, self.lease_seconds / 3)

    def parsed_keys(self) -> dict[str, frozenset[str]]:
        """Token -> scopes."""
        found: dict[str, frozenset[str]] = {}
        for part in filter(None, self.keys.split(",")):
            token, _, scopes = part.strip().rpartition(":")
            if not token or len(token) < 16:
                raise InvalidParameter(
                    "a key of setting keys is not token:scope+scope with a token of 16 characters or more"
                )
            found[token] = parse_scopes(scopes)
        return found

    def environment(self) -> dict[str, str]:
        """The variables from which another process reads the same settings."""
        return {f"{PREFIX}{f.name.upper()}": _text(getattr(self, f.name)) for f in dataclasses.fields(self)}


def parse_scopes(text: str) -> frozenset[str]:
    """`rank+feedback` -> {"rank", "feedback"}.

    >>> sorted(parse_scopes("rank+feedback"))
    ['feedback', 'rank']
    """
    scopes = frozenset(filter(None, text.replace(",", "+").split("+")))
    unknown = sorted(scopes.difference(SCOPES))
    if unknown or not scopes:
        raise InvalidParameter(f"scopes are {text!r}; give some of {', '.join(SCOPES)}, joined by +")
    return scopes


def listed(setting: str) -> frozenset[str]:
    """The names of hosts or origins in a setting.

    >>> sorted(listed("http://Box/, search.local"))
    ['http://box', 'search.local']
    """
    return frozenset(part.strip().lower().rstrip("/") for part in setting.split(",") if part.strip())


def from_environment(environment: Mapping[str, str] = os.environ, **given: Any) -> Settings:
    """Settings from RANKLOOP_… variables; those `given` (and not None) take precedence.

    >>> from_environment({"RANKLOOP_PORT": "9000"}, host=None).port
    9000
    """
    values: dict[str, Any] = {}
    for entry in dataclasses.fields(Settings):
        text = environment.get(f"{PREFIX}{entry.name.upper()}")
        if given.get(entry.name) is not None:
            values[entry.name] = given[entry.name]
        elif text is not None:
            values[entry.name] = _parsed(entry.name, str(entry.type), text)
    return Settings(**values)


def unknown(environment: Mapping[str, str] = os.environ) -> list[tuple[str, str]]:
    """Variables that look like settings but are not, with what may have been meant.

    >>> unknown({"RANKLOOP_WORKRES": "3", "RANKLOOP_PORT": "9000"})
    [('RANKLOOP_WORKRES', 'did you mean RANKLOOP_WORKERS?')]
    """
    names = {f"{PREFIX}{entry.name.upper()}" for entry in dataclasses.fields(Settings)} | OF_OTHERS
    found = []
    for name in sorted(set(environment) - names):
        if name.startswith(PREFIX):
            near = difflib.get_close_matches(name, sorted(names), 1)
            found.append((name, f"did you mean {near[0]}?" if near else "docs/service.md lists the settings"))
    return found


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def is_loopback(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parsed(name: str, kind: str, text: str) -> Any:
    try:
        if kind == "bool":
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        return {"int": int, "float": float, "str": str}[kind](text)
    except (KeyError, ValueError):
        raise InvalidParameter(f"{PREFIX}{name.upper()} is {text!r}; it must be {kind}") from None


def _text(value: Any) -> str:
    return ("1" if value else "0") if isinstance(value, bool) else str(value)
