"""The learners, a folder a family; every class can be imported from here.

>>> from rankloop.learners import PairRank
>>> PairRank(alpha=0.1).alpha
0.1
"""

from importlib import import_module
from typing import Any


def _classes() -> dict[str, str]:
    """Class -> module. The registry reads this package's files, so it cannot be imported with them."""
    table = import_module("rankloop.core.registry").LEARNERS
    return {name: module for module, _, name in (entry.path.partition(":") for entry in table.values())}


def __getattr__(name: str) -> Any:
    module = None if name.startswith("_") else _classes().get(name)
    if module is None:
        raise AttributeError(f"module 'rankloop.learners' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_classes()})
