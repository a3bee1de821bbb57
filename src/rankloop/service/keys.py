"""API keys: who may rank, report feedback, or administer. Digests are stored: a lost key is replaced, not found."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import NamedTuple

from rankloop.service.errors import NotAllowed, NotAuthenticated
from rankloop.service.settings import SCOPES, Settings, is_loopback, parse_scopes
from rankloop.service.store.keys import Known


def new_token() -> str:
    """A key nobody can guess: 192 bits, so a plain digest of it is safe to store."""
    return f"rl_{secrets.token_urlsafe(24)}"


def digest(token: str) -> str:
    """What is stored of a key."""
    return sha256(token.encode()).hexdigest()


class Key(NamedTuple):
    """What a caller may do."""

    scopes: frozenset[str]

    @property
    def sees_rankers(self) -> bool:
        """Whether the caller may know which rankers there are."""
        return "admin" in self.scopes


EVERYTHING = Key(frozenset(SCOPES))  # where no key is asked for


class Keys:
    """The keys of the settings and of the store. On loopback a service is open where there has never been one; any
    other is closed."""

    def __init__(self, settings: Settings) -> None:
        self._fixed = {digest(token): scopes for token, scopes in settings.parsed_keys().items()}
        self._stored: dict[str, frozenset[str]] = {}
        self._loopback = is_loopback(settings.host)
        self._keyed = bool(self._fixed)

    def refresh(self, known: Known) -> None:
        """Take over the keys that are in the store now. Once there was one, there is no way back to none."""
        self._stored = {one.digest: parse_scopes(one.scopes) for one in known.keys}
        self._keyed = self._keyed or known.keyed

    @property
    def off(self) -> bool:
        """Whether no key is asked for."""
        return self._loopback and not self._keyed

    def check(self, header: str | None, scope: str | None) -> Key:
        """The caller's key; refused without an `Authorization` header that carries one with `scope` (None: any key)."""
        if self.off:
            return EVERYTHING
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise NotAuthenticated(
                "this service asks for a key; send the header 'Authorization: Bearer KEY' "
                "(`rankloop keys create NAME --scopes rank+feedback+admin` makes one)"
            )
        known = digest(token.strip())
        scopes = self._fixed.get(known) or self._stored.get(known)
        if scopes is None:
            raise NotAuthenticated("the key is not known here; `rankloop keys list` shows which there are")
        if scope is not None and scope not in scopes:
            have = "+".join(s for s in SCOPES if s in scopes)
            raise NotAllowed(f"this needs a key with scope {scope!r}, the one sent has {have}")
        return Key(scopes)
