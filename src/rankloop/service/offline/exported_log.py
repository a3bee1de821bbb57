"""The log as exported Parquet files have it, a row group at a time, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.compute as pc

from rankloop.core.errors import InvalidParameter, UnknownName
from rankloop.service.maintenance.archive import exporting, parquet
from rankloop.service.maintenance.archive.columns import Chunk
from rankloop.service.maintenance.archive.parquet import LogFile, chunk_from
from rankloop.service.offline.log_source import RankerView
from rankloop.service.storage import rankers
from rankloop.service.storage.lineage import RecordedChange
from rankloop.service.storage.outcomes import Outcome
from rankloop.service.storage.snapshots import StoredState

T = TypeVar("T")
NEEDED = [
    "seq", "learn", "epoch", "feedback", "viewed", "user", "query", "rewards", "order", "items", "width", "features",
    "feature_rows", "feature_columns", "memo", "layout",
]  # fmt: skip


class ExportedLog:
    """A folder of `rankloop export-log`."""

    def __init__(self, folder: Path) -> None:
        self._folder = parquet.existing(folder).resolve()  # workers of a cluster may stand elsewhere
        self._manifests: dict[str, exporting.Manifest] = {}

    def ranker(self, name: str) -> rankers.Ranker:
        return self._manifest(name).row

    def look(self, name: str, work: Callable[[RankerView], T]) -> T:
        return work(_ExportedRanker(self._folder, self._manifest(name)))

    def outcomes(self, name: str, first: int, end: int) -> Iterator[Outcome]:
        for chunk in self.chunks(name, first, end):
            rows = zip(
                chunk.seq.tolist(),
                chunk.learn.tolist(),
                chunk.epoch.tolist(),
                chunk.impressions(),
                (values.tolist() for values in chunk.feedback()),
                chunk.person,
                chunk.viewed,
                strict=True,
            )
            for row in rows:
                yield Outcome(*row)

    def chunks(self, name: str, first: int, end: int) -> Iterator[Chunk]:
        for one in parquet.files_of(self._folder, name):
            if one.first < end and one.end > first:
                yield from chunks_in(one, first, end)

    def partitions(self, name: str, first: int, end: int) -> list[LogFile]:
        """The files that are about some of first … end-1: what others can read beside each other."""
        return [one for one in parquet.files_of(self._folder, name) if one.first < end and one.end > first]

    def _manifest(self, name: str) -> exporting.Manifest:
        if name not in self._manifests:
            names = parquet.rankers_in(self._folder)
            if name not in names:
                raise UnknownName.among("ranker", name, names)
            found = exporting.load_manifest(self._folder, name)
            if found is None:
                raise InvalidParameter(
                    f"the export of ranker {name!r} to {self._folder} has not come to its end; run `rankloop "
                    "export-log` again: it goes on where it was"
                )
            self._manifests[name] = found
        return self._manifests[name]


def chunks_in(one: LogFile, first: int, end: int) -> Iterator[Chunk]:
    """The lists of a file that are of first … end-1."""
    with parquet.opened(one) as file:
        place = file.schema_arrow.get_field_index("seq")
        for group in range(file.num_row_groups):
            seen = file.metadata.row_group(group).column(place).statistics
            if seen is not None and seen.has_min_max and (seen.min >= end or seen.max < first):
                continue
            table: Any = parquet.read_group(one, file, group, NEEDED)
            if one.first < first or one.end > end:
                seq = table["seq"]
                table = table.filter(pc.and_(pc.greater_equal(seq, first), pc.less(seq, end)))
            if len(table):
                yield chunk_from(table)


class _ExportedRanker:
    def __init__(self, folder: Path, told: exporting.Manifest) -> None:
        self._folder, self._told = folder, told

    def head(self) -> int:
        return self._told.outcomes

    def stored(self) -> list[StoredState]:
        kinds = ["origin", "version", "snapshot"]
        found = [one.stored for one in self._told.states]
        return sorted(found, key=lambda one: (kinds.index(one.kind), one.version or one.generation or 0))

    def state(self, one: StoredState) -> bytes:
        (kept,) = (kept for kept in self._told.states if kept.stored == one)
        return exporting.read_state(self._folder, self._told.ranker, kept)

    def reward_scale(self) -> float | None:
        return self._told.reward_scale

    def changes(self) -> list[RecordedChange]:
        return self._told.changes

    def logged(self, first: int, end: int) -> int:
        """From the files' own counts; only one that reaches beyond the range is read."""
        count = 0
        for one in parquet.files_of(self._folder, self._told.ranker):
            if one.first >= end or one.end <= first:
                continue
            with parquet.opened(one) as file:
                if one.first >= first and one.end <= end:
                    count += file.metadata.num_rows
                else:
                    seq = file.read(columns=["seq"])["seq"]
                    inside = pc.and_(pc.greater_equal(seq, first), pc.less(seq, end))
                    count += int(pc.sum(inside).as_py() or 0)
        return count
