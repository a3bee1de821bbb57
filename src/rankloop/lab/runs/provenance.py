"""What identifies a stored run beside its parameters: the code that computes it and the files that it reads."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

from rankloop.clicks.users import FITTED, open_user
from rankloop.core.errors import RankloopError
from rankloop.core.learner import params
from rankloop.core.registry import make
from rankloop.core.sources import digest, digest_of, imported_names, sources_of
from rankloop.lab.datasets.cache import content_of
from rankloop.lab.datasets.sources import files_of
from rankloop.lab.worlds.world import WORLDS

_LIBRARIES = {"numpy", "numba", "scipy", "torch", "lightgbm"}  # other versions may round or draw otherwise


class Provenance(NamedTuple):
    """A key of the code and a key of the files; a run is repeated if either changes."""

    code: str
    files: str  # "" if no file is read


def provenance(trial: Any) -> Provenance:
    """The provenance of a `Runnable`.

    The code is that of the type of the trial, of its learner, its user and its world, and of everything that these
    import from rankloop or their own packages, with the learner's parameters and the versions of numeric libraries.
    """
    given = json.dumps(dict(getattr(trial, "params", {})), sort_keys=True, default=repr)
    names = (getattr(trial, name, "") for name in ("learner", "user", "world"))
    code = _code(type(trial).__module__, given, *names)
    try:
        files = _files(trial)
        return Provenance(code, digest(map(content_of, files)) if files else "")
    except (RankloopError, OSError):  # the run will fail with the reason
        return Provenance(code, "unreadable")


@cache
def _code(module: str, given: str, learner: str, user: str, world: str) -> str:
    parts, modules = [], {module}
    try:
        if world:
            modules.add(_module_of_world(world.partition("?")[0]))
        if learner:
            made = make(learner, **json.loads(given))
            cls = type(made)
            modules.add(cls.__module__)
            parts = [f"{cls.__module__}:{cls.__qualname__}", json.dumps(params(made), default=repr)]
            if user:
                opened: Any = open_user(user, 4, cls.feedback)
                modules |= {type(opened).__module__, type(getattr(opened, "model", opened)).__module__}
    except (RankloopError, ImportError):  # the run will fail with the reason
        parts.append(given)
    return digest([*parts, _digest_of(tuple(sorted(modules)))])


@cache
def _digest_of(modules: tuple[str, ...]) -> str:
    files = sources_of(modules)
    libraries = sorted({name.partition(".")[0] for file in files for name in imported_names(file)} & _LIBRARIES)
    return digest([*map(_version, libraries), digest_of(files)])


def _version(library: str) -> str:
    try:
        return f"{library} {metadata.version(library)}"
    except metadata.PackageNotFoundError:
        return f"no {library}"


def _module_of_world(name: str) -> str:
    if name in WORLDS:
        return WORLDS[name][0].__module__
    found = metadata.entry_points(group="rankloop.worlds", name=name)
    return import_module(next(iter(found)).module if found else name.partition(":")[0]).__name__


def _files(trial: Any) -> list[Path]:
    """The files of its data set, of a fitted user, and of click models."""
    user, models = getattr(trial, "user", ""), getattr(trial, "models", "")
    others = [Path(user.removeprefix(FITTED)) if user.startswith(FITTED) else None, Path(models) if models else None]
    data = [] if models else files_of(trial.data)
    return [*data, *(file for file in others if file is not None and file.is_file())]
