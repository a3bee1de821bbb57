"""API keys: who may rank, report feedback, or administer. Digests are stored: a lost key is replaced, not found."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import sha256

from rankloop.service.errors import NotAllowed, NotAuthenticated
from rankloop.service.settings import SCOPES, Settings, is_loopback, parse_scopes


def new_token() -> str:
    """A key nobody can guess: 192 bits, so a plain digest of it is safe to store."""
    return f"rl_{secrets.token_urlsafe(24)}"


def digest(token: str) -> str:
    """What is stored of a key."""
    return sha256(token.encode()).hexdigest()


class Keys:
    """The keys of the settings and of the store. Without any, a service on loopback is open, any other closed."""

    def __init__(self, settings: Settings) -> None:
        self._fixed = {digest(token): scopes for token, scopes in settings.parsed_keys().items()}
        self._stored: dict[str, frozenset[str]] = {}
        self._loopback = is_loopback(settings.host)

    def refresh(self, stored: Iterable[tuple[str, str, str, float]]) -> None:
        """Take over the keys that are in the store now."""
        self._stored = {found: parse_scopes(scopes) for found, _, scopes, _ in stored}

    @property
    def off(self) -> bool:
        """Whether no key is asked for."""
        return self._loopback and not self._fixed and not self._stored

    def check(self, header: str | None, scope: str | None) -> None:
        """Refuse a caller whose `Authorization` header does not carry a key with `scope` (None: any key)."""
        if self.off:
            return
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise NotAuthenticated("this service asks for a key; send the header 'Authorization: Bearer KEY'")
        known = digest(token.strip())
        scopes = self._fixed.get(known) or self._stored.get(known)
        if scopes is None:
            raise NotAuthenticated("the key is not known here; `rankloop keys list` shows which there are")
        if scope is not None and scope not in scopes:
            have = "+".join(s for s in SCOPES if s in scopes)
            raise NotAllowed(f"this needs a key with scope {scope!r}, the one sent has {have}")
