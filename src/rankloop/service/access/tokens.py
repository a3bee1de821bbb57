"""Tokens: whoever was shown a list may report on it, without a key, until its window ends.

A token names a list, its ranker and its end, and is signed (HMAC-SHA256) with a secret of the store, which all
processes share. Nothing is looked up to check one, and nothing is stored for it. It opens one thing: clicks on that
list.
"""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from rankloop.service.errors import BadToken
from rankloop.service.storage.keys import Secret
from rankloop.service.storage.times import ALPHABET

_DIGITS = str.maketrans(ALPHABET, "0123456789abcdefghijklmnopqrstuv")  # as Python reads numbers to the base of 32
SETTLED = 10.0  # seconds until a new secret signs: by then every process has read it (they look every second)


class Claim(NamedTuple):
    """What a token says."""

    impression_id: str
    ranker: str
    expires: int  # Unix time


class _Answered(msgspec.Struct):
    """As much of an answer as a token is about."""

    impression_id: str | None
    ranker: Annotated[str, msgspec.Meta(min_length=1)]


_read_answer = msgspec.json.Decoder(_Answered).decode


class Tokens:
    """Signs and checks.

    Parameters
    ----------
    clock
        Time of day, in seconds; tests move it.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._secrets: dict[str, bytes] = {}
        self._newest: list[Secret] = []  # the newest first

    def refresh(self, secrets: Sequence[Secret]) -> None:
        """Take over the secrets that are in the store now."""
        self._newest = sorted(secrets, key=lambda one: -one.id)
        self._secrets = {str(one.id): one.secret for one in secrets}

    def sign(self, claim: Claim) -> str:
        """The token of a list."""
        settled = self._clock() - SETTLED
        newest = self._newest
        secret = next((one for one in newest if one.created <= settled), newest[-1])
        said = f"{claim.impression_id}~{claim.ranker}~{claim.expires}~{secret.id}"
        return f"{said}~{_signature(secret.secret, said)}"

    def read(self, token: str) -> Claim:
        """What a token says, if it was signed here and its time has not ended."""
        said, _, signature = token.rpartition("~")
        parts = said.split("~")
        secret = self._secrets.get(parts[-1])
        if len(parts) != 4 or secret is None or not token.isascii():
            raise BadToken(
                "the token is none of this service, or its secret was replaced; take `token` of a new answer"
            )
        if not hmac.compare_digest(_signature(secret, said), signature):
            raise BadToken("the token was altered; send it back as it came in `token` of the answer")
        claim = Claim(parts[0], parts[1], int(parts[2]))
        if self._clock() >= claim.expires:
            ended = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(claim.expires))
            raise BadToken(
                f"the token has ended, at {ended} UTC, with the list's window (window_seconds of the ranker)"
            )
        return claim

    def added(self, answer: bytes, window_seconds: float) -> bytes:
        """An answer to a request to rank, with the token of its list; null where there is nothing to report on."""
        found = _read_answer(answer)
        if found.impression_id is None:
            return answer[:-1] + b',"token":null}'
        expires = int(created_at(found.impression_id) + window_seconds) + 1
        token = self.sign(Claim(found.impression_id, found.ranker, expires))
        return b'%s,"token":"%s"}' % (answer[:-1], token.encode("ascii"))


def _signature(secret: bytes, said: str) -> str:
    return urlsafe_b64encode(hmac.digest(secret, said.encode("ascii"), "sha256")).rstrip(b"=").decode("ascii")


def created_at(identifier: str) -> float:
    """When an id was made, in seconds of Unix time, to the millisecond.

    >>> from rankloop.service.storage.log import new_id
    >>> created_at(new_id(1234.567))
    1234.567
    """
    return (int(identifier.translate(_DIGITS), 32) >> 80) / 1000
