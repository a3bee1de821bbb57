"""What things are told apart by: machines, requests, the kinds of feedback that learners take."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from rankloop.core import registry
from rankloop.core.errors import RankloopError
from rankloop.core.types import Array, SparseRows


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


def digest(said: Sequence[Any], sent: Array | SparseRows | None) -> bytes:
    """What makes two requests the same: what they say (query, k, ids, …), and the features that they bring."""
    rows = 0  # large, and only a guard
    if isinstance(sent, SparseRows):
        rows = crc32(sent.values.data, crc32(sent.indices.data, crc32(sent.indptr.data)))
    elif sent is not None:
        rows = crc32(np.ascontiguousarray(sent).data)
    return blake2b(msgspec.json.encode([*said, rows]), digest_size=16).digest()


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
