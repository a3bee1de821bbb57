"""API keys: who may do what, with which rankers, until when. Digests are stored: a lost key is replaced, not found."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from rankloop.service.access.limits import Limits
from rankloop.service.access.tokens import Tokens
from rankloop.service.errors import NotAllowed, NotAuthenticated
from rankloop.service.observability import tracing
from rankloop.service.settings import SCOPES, Settings, is_loopback
from rankloop.service.storage.keys import Known, StoredKey


def new_token() -> str:
    """A key nobody can guess: 192 bits, so a plain digest of it is safe to store."""
    return f"rl_{secrets.token_urlsafe(24)}"


def digest(token: str) -> str:
    """What is stored of a key."""
    return sha256(token.encode()).hexdigest()


class Key(NamedTuple):
    """What a caller may do."""

    name: str
    scopes: frozenset[str]
    rankers: frozenset[str] | None = None  # those it is for; None: all
    expires: float | None = None
    limits: Limits | None = None
    catalogs: frozenset[str] = frozenset()  # those it may use, if it is for some rankers only

    def has(self, scope: str) -> bool:
        """Whether it has a scope; who may change may look."""
        return scope in self.scopes or (scope == "read" and "admin" in self.scopes)

    def is_for(self, ranker: str) -> bool:
        """Whether it is for a ranker."""
        return self.rankers is None or ranker in self.rankers

    def may_use(self, catalog: str) -> bool:
        """Whether it may read and write a catalog, given the scope. A key for some rankers may use only the catalogs
        that it names."""
        return self.rankers is None or catalog in self.catalogs

    def require_scope(self, scope: str) -> None:
        """Raise NotAllowed unless the key has `scope`."""
        if not self.has(scope):
            have = "+".join(s for s in SCOPES if s in self.scopes)
            raise NotAllowed(f"this needs a key with scope {scope!r}, the one sent has {have}")

    def require_ranker(self, ranker: str) -> None:
        """Raise NotAllowed unless the key is for `ranker`."""
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
        """Raise NotAllowed if the key is limited to some rankers."""
        if self.rankers is not None:
            raise NotAllowed("this is about all rankers, the key sent is for some; take one that is for all")

    @property
    def sees_names(self) -> bool:
        """Whether error messages may list the rankers and catalogs that exist."""
        return self.has("read") and self.rankers is None


EVERYTHING = Key("", frozenset(SCOPES))  # where no key is asked for


class Keys:
    """The keys of the settings and of the store. On loopback a service is open where there has never been one; any
    other is closed."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        fixed = enumerate(settings.parsed_keys().items(), 1)
        self._fixed = {digest(token): Key(f"RANKLOOP_KEYS #{n}", scopes) for n, (token, scopes) in fixed}
        self._stored: dict[str, Key] = {}
        self._clock = clock
        self.tokens = Tokens(clock)
        self._loopback = is_loopback(settings.host)
        self._keyed = bool(self._fixed)
        self.off = self._loopback and not self._keyed  # whether no key is asked for

    def refresh(self, known: Known) -> None:
        """Take over the keys that are in the store now. Once there was one, there is no way back to none."""
        # A later release may know more scopes: they open nothing here.
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
        """Those of before, which have counted, unless they are others now."""
        if stored.rate is None and stored.concurrency is None:
            return None
        key = self._stored.get(stored.digest)
        before = None if key is None else key.limits
        if before is not None and (before.rate, before.concurrency) == (stored.rate, stored.concurrency):
            return before
        return Limits(stored.rate, stored.concurrency)

    def check(self, header: str | None, scope: str | None, ranker: str | None = None) -> Key:
        """The caller's key; refused without an `Authorization` header that carries one with `scope` (None: any key) and
        for `ranker` (None: this is about no ranker)."""
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
            raise NotAuthenticated("the key is not known here; `rankloop keys list` shows which there are")
        if key.expires is not None and self._clock() >= key.expires:
            ended = time.strftime("%Y-%m-%d %H:%M", time.gmtime(key.expires))
            raise NotAuthenticated(f"the key has ended, at {ended} UTC; `rankloop keys create` makes another")
        trace = tracing.current.get()
        if trace is not None:
            trace.key = key.name
        if scope is not None:
            key.require_scope(scope)
        if ranker is not None:
            key.require_ranker(ranker)
        if key.limits is not None and trace is not None:  # who is in no request will not leave, either
            key.limits.enter()
            trace.held.append(key.limits)
        return key
