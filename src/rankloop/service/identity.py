"""What things are told apart by: machines, requests, the kinds of feedback that learners take."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from rankloop import registry
from rankloop.errors import RankloopError
from rankloop.types import Candidates, SparseRows


class Kinds(dict[str, str]):
    """Learner -> the kind of feedback it takes; those of other packages are looked up when they are asked for."""

    def get(self, name: str, default: Any = None) -> Any:
        """The kind of a learner's feedback, `default` if there is none of that name any more."""
        if name not in self:
            try:
                self[name] = registry.learner_class(name).feedback
            except (ImportError, RankloopError):
                return default
        return self[name]


def kinds() -> Kinds:
    """What ours take; one whose library is not installed cannot be served anyway."""
    found = Kinds()
    for name in registry.LEARNERS:
        try:
            found[name] = registry.learner_class(name).feedback
        except (ImportError, RankloopError):
            continue
    return found


def digest(candidates: Candidates, k: int, rules: Sequence[Any] = ()) -> bytes:
    """What makes two requests the same: query, k, ids and features; the rules of a shop, where there are any."""
    given, rows = candidates.features, 0  # large, and only a guard
    if isinstance(given, SparseRows):
        rows = crc32(given.values.data, crc32(given.indices.data, crc32(given.indptr.data)))
    elif given is not None:
        rows = crc32(given.data)
    said = [candidates.query, k, candidates.items.tolist(), rows, *rules]
    return blake2b(msgspec.json.encode(said), digest_size=16).digest()


def machine() -> str:
    """This machine since it was started: process numbers mean something only within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii")[:8]
    except OSError:
        boot = "0"
    try:
        # Containers of one machine number their own processes.
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        space = "0"
    return f"{socket.gethostname()}/{boot}/{space}"
