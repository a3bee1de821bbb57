"""`python -m benchmarks [learners] [evaluation] [data] [worlds] [clicks] [bandits] [topk] [neural] …`: tables.

Without a name, all; the last is `capacity`, which writes what `rankloop plan` reads.

`python -m benchmarks weekly --help` tells of the one that takes options, and hours: it is not among all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, as the figures say

from benchmarks import (
    bandits,
    bench_data,
    bench_evaluation,
    bench_learners,
    bench_worlds,
    capacity,
    click_models,
    neural,
    parsing,
    topk,
)

BENCHES = {"learners": bench_learners, "evaluation": bench_evaluation, "data": bench_data, "worlds": bench_worlds}
BENCHES |= {"clicks": click_models, "bandits": bandits, "topk": topk, "neural": neural, "parsing": parsing}
BENCHES |= {"capacity": capacity}  # last: it wants the machine to itself, and writes what `rankloop plan` reads


def machine() -> str:
    """The processor's name, so that figures can be compared."""
    cpuinfo = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else "unknown processor"


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """A Markdown table, ready to paste."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [columns, *([_text(row.get(column, "")) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for number, line in enumerate(cells):
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def main(names: Sequence[str]) -> None:
    """Run the benches named."""
    if list(names[:1]) == ["weekly"]:
        from benchmarks import weekly_table  # needs LightGBM, as no other does

        weekly_table.main(names[1:])
        return
    unknown = set(names) - set(BENCHES)
    if unknown:
        sys.exit(f"benchmarks: no bench is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    print(f"Machine: {machine()}\n")
    for name in names or BENCHES:
        print(f"## {name}\n\n{BENCHES[name].__doc__}")
        print_rows(BENCHES[name].run())
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
