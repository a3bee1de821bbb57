"""Who may call: API keys with scopes, rankers, catalogs and limits, and signed tokens for browsers."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, NamedTuple

import msgspec

from rankloop.service.errors import BadToken, NotAllowed, NotAuthenticated, TooMany
from rankloop.service.observability import tracing
from rankloop.service.settings import SCOPES, Settings, is_loopback
from rankloop.service.storage.ids import ALPHABET
from rankloop.service.storage.keys import Secret, StoredKey, StoredKeys

_DIGITS = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")  # as Python reads numbers to the base of 32
SETTLED = 10.0  # seconds until a new secret signs: by then every process has read it


class Limits:
    """Requests per second and at a time with one key, counted in each process for itself.

    Parameters
    ----------
    rate
        Requests per second, and as many at once; None: no limit.
    concurrency
        Requests at a time; None: no limit.
    clock
        In seconds.
    """

    def __init__(
        self, rate: float | None, concurrency: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.concurrency = rate, concurrency
        self._clock, self._last = clock, clock()
        self._most = self._left = max(rate or 0.0, 1.0)
        self._inside = 0

    def enter(self) -> None:
        """Count a request, or refuse it; call `leave` when it has been answered."""
        if self.concurrency is not None and self._inside >= self.concurrency:
            raise TooMany(
                f"{self._inside} requests with this key are being answered, and it may have {self.concurrency} at a "
                "time; wait for one of them",
                1,
            )
        if self.rate is not None:
            now = self._clock()
            self._left = min(self._most, self._left + (now - self._last) * self.rate)
            self._last = now
            if self._left < 1.0:
                wait = (1.0 - self._left) / self.rate
                text = f"the key sent may make {self.rate:g} requests per second; send fewer, or wait"
                raise TooMany(text, math.ceil(wait))
            self._left -= 1.0
        self._inside += 1

    def leave(self) -> None:
        """The request has been answered."""
        self._inside -= 1


class UseCounts:
    """How often each name was used, at most `most` times; forgets the least recently used of more than `kept` names.

    >>> counts = UseCounts(most=2, kept=2)
    >>> [counts.take("a"), counts.take("a"), counts.take("a"), counts.take("b")]
    [True, True, False, True]
    """

    def __init__(self, most: int, kept: int = 65_536) -> None:
        self._most, self._kept = most, kept
        self._counts: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Whether it may be used once more, which is counted."""
        count = self._counts.pop(name, 0)
        self._counts[name] = min(count + 1, self._most)  # now the most recent
        if len(self._counts) > self._kept:
            del self._counts[next(iter(self._counts))]
        return count < self._most


def new_token() -> str:
    """A random key of 192 bits: a plain digest of it is safe to store."""
    return f"rl_{secrets.token_urlsafe(24)}"


def digest(token: str) -> str:
    """What is stored of a key."""
    return sha256(token.encode()).hexdigest()


class Key(NamedTuple):
    """What a caller may do."""

    name: str
    scopes: frozenset[str]
    rankers: frozenset[str] | None = None  # None: all
    expires: float | None = None
    limits: Limits | None = None
    catalogs: frozenset[str] = frozenset()  # of a key that is limited to rankers

    def has(self, scope: str) -> bool:
        """Whether it has a scope; admin includes read."""
        return scope in self.scopes or (scope == "read" and "admin" in self.scopes)

    def is_for(self, ranker: str) -> bool:
        """Whether it may use a ranker."""
        return self.rankers is None or ranker in self.rankers

    def may_use(self, catalog: str) -> bool:
        """Whether it may use a catalog, given the scope: a key that is limited to rankers may use those it names."""
        return self.rankers is None or catalog in self.catalogs

    def require_scope(self, scope: str) -> None:
        """Raise NotAllowed unless the key has `scope`."""
        if not self.has(scope):
            have = "+".join(s for s in SCOPES if s in self.scopes)
            raise NotAllowed(f"this needs a key with scope {scope!r}, the one sent has {have}")

    def require_ranker(self, ranker: str) -> None:
        """Raise NotAllowed unless the key may use `ranker`."""
        if not self.is_for(ranker):
            raise NotAllowed(f"the key sent is for other rankers: {', '.join(sorted(self.rankers or ()))}")

    def require_catalog(self, catalog: str) -> None:
        """Raise NotAllowed unless the key may use `catalog`."""
        if not self.may_use(catalog):
            named = ", ".join(sorted(self.catalogs)) or "none"
            raise NotAllowed(
                f"the key sent may not use catalog {catalog!r}; it is limited to catalogs: {named} "
                "(`rankloop keys create NAME --rankers … --catalogs …` makes one that may)"
            )

    def require_everything(self) -> None:
        """Raise NotAllowed if the key is limited to rankers."""
        if self.rankers is not None:
            raise NotAllowed("this concerns all rankers, and the key sent is for some; use one that is for all")

    @property
    def sees_names(self) -> bool:
        """Whether error messages may list the rankers and catalogs that exist."""
        return self.has("read") and self.rankers is None


EVERYTHING = Key("", frozenset(SCOPES))  # where no key is required


class Keys:
    """The keys of the settings and of the store. Without any, a service on loopback is open, any other is closed."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        fixed = enumerate(settings.parsed_keys().items(), 1)
        self._fixed = {digest(token): Key(f"RANKLOOP_KEYS #{n}", scopes) for n, (token, scopes) in fixed}
        self._stored: dict[str, Key] = {}
        self._clock = clock
        self.tokens = Tokens(clock)
        self._loopback = is_loopback(settings.host)
        self._keyed = bool(self._fixed)
        self.off = self._loopback and not self._keyed  # whether no key is required

    def refresh(self, known: StoredKeys) -> None:
        """Use the keys and secrets in the store. A service that has had a key stays closed without one."""
        # Scopes of a later release are ignored.
        self._stored = {
            one.digest: Key(
                one.name,
                frozenset(one.scopes.split("+")).intersection(SCOPES),
                one.rankers,
                one.expires,
                self._limits(one),
                one.catalogs,
            )
            for one in known.keys
        }
        self._keyed = self._keyed or known.keyed
        self.off = self._loopback and not self._keyed
        self.tokens.refresh(known.secrets)

    def _limits(self, stored: StoredKey) -> Limits | None:
        """The limits of a key, with their counts if they are unchanged."""
        if stored.rate is None and stored.concurrency is None:
            return None
        key = self._stored.get(stored.digest)
        before = None if key is None else key.limits
        if before is not None and (before.rate, before.concurrency) == (stored.rate, stored.concurrency):
            return before
        return Limits(stored.rate, stored.concurrency)

    def check(self, header: str | None, scope: str | None, ranker: str | None = None) -> Key:
        """The caller's key from an `Authorization` header; it must have `scope` and be for `ranker`, if given.
        Raises NotAuthenticated, NotAllowed or TooMany."""
        if self.off:
            return EVERYTHING
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise NotAuthenticated(
                "this service asks for a key; send the header 'Authorization: Bearer KEY' "
                "(`rankloop keys create NAME --scopes rank+feedback+admin` makes one)"
            )
        known = digest(token.strip())
        key = self._fixed.get(known) or self._stored.get(known)
        if key is None:
            raise NotAuthenticated("the key is unknown; `rankloop keys list` shows the keys of the store")
        if key.expires is not None and self._clock() >= key.expires:
            ended = time.strftime("%Y-%m-%d %H:%M", time.gmtime(key.expires))
            raise NotAuthenticated(f"the key expired at {ended} UTC; `rankloop keys create` makes another")
        trace = tracing.current.get()
        if trace is not None:
            trace.key = key.name
        if scope is not None:
            key.require_scope(scope)
        if ranker is not None:
            key.require_ranker(ranker)
        if key.limits is not None and trace is not None:  # the end of the trace leaves
            key.limits.enter()
            trace.held.append(key.limits)
        return key


# -- tokens --------------------------------------------------------------------------------------------------------


class Claim(NamedTuple):
    """What a token allows: events about one ranking until the end of its attribution window."""

    impression_id: str
    ranker: str
    expires: int  # Unix time


class _Answered(msgspec.Struct):
    """The fields of an answer that a token needs."""

    impression_id: str | None
    ranker: Annotated[str, msgspec.Meta(min_length=1)]


_read_answer = msgspec.json.Decoder(_Answered).decode


class Tokens:
    """Signs and checks tokens (HMAC-SHA256) with secrets of the store, which all processes share. Nothing is stored."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._secrets: dict[str, bytes] = {}
        self._newest: list[Secret] = []  # newest first

    def refresh(self, stored: Sequence[Secret]) -> None:
        """Use the secrets in the store."""
        self._newest = sorted(stored, key=lambda one: -one.id)
        self._secrets = {str(one.id): one.secret for one in stored}

    def sign(self, claim: Claim) -> str:
        """The token of a ranking."""
        settled = self._clock() - SETTLED
        newest = self._newest
        secret = next((one for one in newest if one.created <= settled), newest[-1])
        text = f"{claim.impression_id}~{claim.ranker}~{claim.expires}~{secret.id}"
        return f"{text}~{_signature(secret.secret, text)}"

    def read(self, token: str) -> Claim:
        """The claim of a token that was signed here and has not expired; raises BadToken."""
        text, _, signature = token.rpartition("~")
        parts = text.split("~")
        secret = self._secrets.get(parts[-1])
        if len(parts) != 4 or secret is None or not token.isascii():
            raise BadToken(
                "the token is not from this service, or its secret was replaced; use `token` of a new answer"
            )
        if not hmac.compare_digest(_signature(secret, text), signature):
            raise BadToken("the token was altered; send it back as it came in `token` of the answer")
        claim = Claim(parts[0], parts[1], int(parts[2]))
        if self._clock() >= claim.expires:
            ended = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(claim.expires))
            raise BadToken(
                f"the token expired at {ended} UTC with the attribution window (window_seconds of the ranker)"
            )
        return claim

    def added(self, answer: bytes, window_seconds: float) -> bytes:
        """The answer to a rank request with the token of its impression; null without an impression."""
        found = _read_answer(answer)
        if found.impression_id is None:
            return answer[:-1] + b',"token":null}'
        expires = int(created_at(found.impression_id) + window_seconds) + 1
        token = self.sign(Claim(found.impression_id, found.ranker, expires))
        return b'%s,"token":"%s"}' % (answer[:-1], token.encode("ascii"))


def _signature(secret: bytes, text: str) -> str:
    return urlsafe_b64encode(hmac.digest(secret, text.encode("ascii"), "sha256")).rstrip(b"=").decode("ascii")


def created_at(identifier: str) -> float:
    """When an id was made, in seconds of Unix time, to the millisecond.

    >>> from rankloop.service.storage.ids import new_id
    >>> created_at(new_id(1234.567))
    1234.567
    """
    return (int(identifier.translate(_DIGITS), 32) >> 80) / 1000
