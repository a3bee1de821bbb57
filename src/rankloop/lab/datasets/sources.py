"""Data sets by name: `open_split("synthetic:mslr?queries=500")`, `open_split("data/MSLR-WEB10K?fold=2")`.

What a path may be, and how it is split:

- a folder with `train`, `vali` (or `valid`, `validation`) and `test` files (`.txt`, `.txt.gz`; also Yahoo's
  `set1.train.txt` …). Without a vali file there is no vali part, unless `vali=0.2` says to cut that share off the train
  queries;
- a folder with `Fold1`, `Fold2` … folders of such files; `fold=1` if not given;
- a folder with `part1`, `part2` … files: fold k tests on part k, validates on part k+1 (the last on part 1) and trains
  on the others; `fold=1` if not given;
- a single file: its queries are cut 60/20/20 into train, vali and test.

Cuts are by a hash of the query id, the same everywhere and always.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rankloop.core.errors import DataError, InvalidParameter, UnknownName
from rankloop.core.specs import choice, integer, number, only, parse_spec
from rankloop.core.types import Array
from rankloop.lab.datasets import synthetic
from rankloop.lab.datasets.dataset import Dataset, Split
from rankloop.lab.datasets.letor import NORMALIZATIONS, Progress, read_parts, write_letor

__all__ = ["describe", "open_split", "write_letor"]

Source = tuple[list[Path], tuple[float, ...]]  # files, and the shares of the parts that they give

_ROLE = re.compile(r"(set\d\.)?(train|vali|valid|validation|test)(\.txt)?(\.gz)?")
_PART = re.compile(r"part(\d+)(\.txt)?(\.gz)?")
_FOLD = re.compile(r"fold(\d+)", re.IGNORECASE)
_LARGEST = 16  # gigabytes that a generated set may take: it is made in memory
_BATCH = 4096  # rows looked at together


def open_split(spec: str, on_progress: Progress | None = None) -> Split:
    """The data set that a spec names: generated, or read from a LETOR file or folder.

    Examples
    --------
    >>> split = open_split("synthetic:mq2008?queries=20&vali=5&test=5&seed=1")
    >>> len(split.train), split.test.width, split.test.highest_grade
    (20, 46, 2)
    >>> open_split("synthetic:msrl")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    rankloop.core.errors.UnknownName: no synthetic data set is called 'msrl'; did you mean 'mslr'? there are mslr,
    yahoo, …
    """
    check_spec(spec)
    name, options = parse_spec(spec)
    if name.startswith("synthetic:"):
        return synthetic.generate(**_generator_options(name.removeprefix("synthetic:"), options))
    sources = _sources(Path(name), options)
    normalize = choice(options, "normalize", NORMALIZATIONS)
    parts = _read(sources, normalize, 0, on_progress)
    width = max(part.width for part in parts)
    if any(part.width < width for part in parts):  # some file lacks the last features of the set
        parts = _read(sources, normalize, width, on_progress)
    scale = max(int(part.grades.max()) for part in parts)
    title = Path(name).resolve().name
    named = zip(("train", "vali", "test") if len(parts) == 3 else ("train", "test"), parts, strict=True)
    found = {role: replace(part, name=f"{title}/{role}", scale=scale, _candidates={}) for role, part in named}
    return Split(found["train"], found.get("vali"), found["test"])


def shared_split(spec: str) -> Split:
    """The data set that a spec names; the last two are kept open until their files change."""
    return _kept_open(spec, tuple((file, file.stat().st_size, file.stat().st_mtime_ns) for file in files_of(spec)))


@lru_cache(maxsize=2)
def _kept_open(spec: str, _stamps: tuple[tuple[Path, int, int], ...]) -> Split:
    return open_split(spec)


def check_spec(spec: str) -> None:
    """Refuse a spec that names nothing there is, without opening anything."""
    name, options = parse_spec(spec)
    if name.startswith("synthetic:"):
        _generator_options(name.removeprefix("synthetic:"), options)
        return
    if not Path(name).exists():
        known = ", ".join(f"synthetic:{known}" for known in synthetic.SHAPES)
        raise UnknownName(f"no data set {name!r}: no such file or folder; to try things without data there are {known}")
    only(options, ("fold", "vali", "normalize"), name)


def files_of(spec: str) -> list[Path]:
    """The files that `open_split` would read; none for a generated set, or where nothing is there."""
    name, options = parse_spec(spec)
    if name.startswith("synthetic:") or not Path(name).exists():
        return []
    return [file for files, _ in _sources(Path(name), options) for file in files]


def describe(split: Split) -> dict[str, Any]:
    """What is in it, in plain numbers: what `rankloop data info` shows.

    >>> describe(open_split("synthetic:np2003?queries=3&vali=1&test=1"))["constant features"]
    5
    """
    lows, highs = zip(*(_ranges(part) for part in split.parts.values()), strict=True)
    return {
        "features": split.train.width,
        "constant features": int((np.min(lows, axis=0) == np.max(highs, axis=0)).sum()),
        "highest grade": split.train.highest_grade,
        "normalization": split.train.normalization,
        "parts": {role: _describe_part(part) for role, part in split.parts.items()},
    }


def _describe_part(part: Dataset) -> dict[str, Any]:
    sizes = np.diff(part.offsets)
    quantiles = np.quantile(sizes, (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1))
    best = np.maximum.reduceat(part.grades, part.offsets[:-1])
    zeros = sum(int((rows == 0).sum()) for rows in _batches(part.features))
    return {
        "queries": len(part),
        "documents": len(part.grades),
        "documents per query": {
            "mean": float(sizes.mean()),
            **dict(zip(("min", "10%", "25%", "50%", "75%", "90%", "max"), quantiles.tolist(), strict=True)),
        },
        "grades": np.bincount(part.grades, minlength=part.highest_grade + 1).tolist(),
        "queries without relevant documents": float((best == 0).mean()),
        "zeros": zeros / part.features.size,
    }


def _ranges(part: Dataset) -> tuple[Array, Array]:
    """(d,) lowest and (d,) highest value of each feature."""
    extremes = [(rows.min(axis=0), rows.max(axis=0)) for rows in _batches(part.features)]
    lows, highs = zip(*extremes, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _batches(features: Array) -> list[Array]:
    return [features[i : i + _BATCH] for i in range(0, len(features), _BATCH)]


def _generator_options(name: str, options: Mapping[str, str]) -> dict[str, Any]:
    shape = synthetic.SHAPES.get(name)
    if shape is None:
        raise UnknownName.among("synthetic data set", name, synthetic.SHAPES)
    known = ("queries", "vali", "test", "docs", "sizes", "features", "seed", "relevance", "normalize")
    only(options, known, f"synthetic:{name}")
    defaults = zip(("queries", "vali", "test"), shape.queries, strict=True)
    queries = tuple(integer(options, key, default, at_least=1) for key, default in defaults)
    docs = integer(options, "docs", shape.docs, at_least=1)
    features = integer(options, "features", shape.features, at_least=1)
    gigabytes = 8e-9 * sum(queries) * docs * features
    if gigabytes > _LARGEST:
        raise InvalidParameter(
            f"synthetic:{name} with these options takes {gigabytes:,.0f} GB; ask for at most {_LARGEST} GB: fewer "
            "queries, docs or features"
        )
    return {
        "name": name,
        "queries": queries,
        "docs": docs,
        "sizes": choice(options, "sizes", synthetic.SIZES),
        "features": features,
        "seed": integer(options, "seed", 0),
        "relevance": choice(options, "relevance", synthetic.RELEVANCES),
        "normalize": choice(options, "normalize", NORMALIZATIONS),
    }


def _read(sources: list[Source], normalize: str, width: int, on_progress: Progress | None) -> list[Dataset]:
    parts: list[Dataset] = []
    for paths, shares in sources:
        parts += read_parts(paths, shares, normalize=normalize, width=width, on_progress=on_progress)
    return parts


def _sources(path: Path, options: Mapping[str, str]) -> list[Source]:
    """Which files make train, vali and test."""
    if path.is_file():
        _no_folds(path, options)
        return [([path], (0.6, 0.2, 0.2))]
    inside = sorted(path.iterdir())
    folds = _numbered(inside, _FOLD)
    if folds:
        return _roles(folds[_fold(path, options, folds)], options)
    parts = _numbered(inside, _PART)
    if len(parts) >= 3:
        numbers = sorted(parts)
        test = _fold(path, options, parts)
        vali = numbers[(numbers.index(test) + 1) % len(numbers)]
        train = [parts[number] for number in numbers if number not in (test, vali)]
        return [(train, (1.0,)), ([parts[vali]], (1.0,)), ([parts[test]], (1.0,))]
    _no_folds(path, options)
    return _roles(path, options)


def _roles(folder: Path, options: Mapping[str, str]) -> list[Source]:
    """The sources of a folder with train, vali and test files."""
    sets: dict[str, dict[str, Path]] = {}  # by Yahoo's "set1." or nothing
    for file in sorted(folder.iterdir()):
        if match := _ROLE.fullmatch(file.name):
            role = "vali" if match[2].startswith("vali") else match[2]
            sets.setdefault(match[1] or "", {}).setdefault(role, file)  # the plain one, where there is a .gz too
    for roles in sets.values():
        if "train" in roles and "test" in roles:
            test: Source = ([roles["test"]], (1.0,))
            if "vali" in roles:
                return [([roles["train"]], (1.0,)), ([roles["vali"]], (1.0,)), test]
            share = number(options, "vali", 0.0)
            if not 0 <= share < 1:
                raise InvalidParameter(f"vali is {share}; it is a share of the train queries, at least 0 and below 1")
            return [([roles["train"]], (1.0 - share, share) if share else (1.0,)), test]
    found = ", ".join(sorted(file.name for file in folder.iterdir())[:8]) or "nothing"
    raise DataError(
        f"{folder}: no train and test files in it, found {found}; "
        "give a folder with train.txt, vali.txt and test.txt, with Fold1 …, with part1 …, or a single file"
    )


def _numbered(paths: list[Path], pattern: re.Pattern[str]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for path in paths:
        if match := pattern.fullmatch(path.name):
            found.setdefault(int(match[1]), path)
    return found


def _fold(path: Path, options: Mapping[str, str], folds: Mapping[int, Path]) -> int:
    fold = integer(options, "fold", min(folds))
    if fold not in folds:
        raise InvalidParameter(f"fold is {fold}, but {path} has folds {', '.join(map(str, sorted(folds)))}")
    return fold


def _no_folds(path: Path, options: Mapping[str, str]) -> None:
    if "fold" in options:
        raise InvalidParameter(f"fold is {options['fold']!r}, but {path} has no folds; leave the option out")
