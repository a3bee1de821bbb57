"""`rankloop data`: look at data sets, write them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App

from rankloop.cli import _out


def add_to(app: App) -> None:
    """Register the commands."""
    data = App(name="data", help="Look at a ranking data set, or write it as LETOR text.")
    data.command(info)
    data.command(convert)
    app.command(data)


def info(spec: str, /, *, json: bool = False) -> None:
    """Describe a data set: queries, documents, grades, features.

    Parameters
    ----------
    spec
        `synthetic:NAME[?option=value&…]`, or a path to a LETOR file or folder (plain or gzip, with `?fold=2`).
    json
        Print JSON.
    """
    from rankloop.lab.datasets.sources import describe, open_split

    _out.say_when_compiling()
    with _out.progress_bars() as bars:
        task = bars.add_task("reading", total=None)
        split = open_split(spec, on_progress=lambda done, total: bars.update(task, completed=done, total=total))
    found = describe(split)
    if json:
        _out.print_json(found)
    else:
        parts = found.pop("parts")
        shared = ", ".join(f"{name} {_text(value)}" for name, value in found.items())
        rows = [[name, *(_text(part[name]) for part in parts.values())] for name in next(iter(parts.values()))]
        _out.print_table(f"{spec}: {shared}", ["", *parts], rows)


def convert(spec: str, target: Path, /, *, part: Literal["train", "vali", "test", "all"] = "all") -> None:
    """Write a data set as LETOR text, values as they are: a folder with train, vali and test, or one part as one file.

    Parameters
    ----------
    spec
        Where from: see `rankloop data info`.
    target
        A folder for all parts, a file (gzip if it ends in .gz) for one.
    part
        train, vali, test or all.
    """
    from rankloop.core.errors import InvalidParameter
    from rankloop.lab.datasets.sources import open_split, write_letor

    if part == "all" and target.suffix in (".txt", ".gz"):
        raise InvalidParameter(f"{target} looks like a file; give a folder for all parts, or choose one, --part train")
    if "normalize=" not in spec:  # what is written should be what was read; whoever reads it normalizes
        spec += "&normalize=none" if "?" in spec else "?normalize=none"
    parts = open_split(spec).parts
    if part != "all":
        if part not in parts:
            raise InvalidParameter(f"{spec} has no {part} part; it has {', '.join(parts)}")
        write_letor(parts[part], target)
        _out.people.print(f"wrote {target}")
        return
    target.mkdir(parents=True, exist_ok=True)
    for name, dataset in parts.items():
        write_letor(dataset, target / f"{name}.txt.gz")
        _out.people.print(f"wrote {target / f'{name}.txt.gz'}")


def _text(value: object) -> str:
    if isinstance(value, dict):  # quantiles, a line each
        return "\n".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, list):  # a count for each grade
        total = sum(value) or 1
        return "\n".join(f"{grade}: {count:,} ({count / total:.1%})" for grade, count in enumerate(value))
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
