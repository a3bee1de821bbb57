"""Figures show the means, say who is who, and are the same bytes every time."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.lab.plots import figures, paper_figures
from rankloop.lab.runs.results import table_of

ROUNDS = (1, 10, 100)
DATA, USERS = ("synthetic:mslr?queries=9", "data/Yahoo"), ("perfect", "navigational")


def value(label: str, data: str, user: str, seed: int, at: int) -> float:
    return float(len(label) + DATA.index(data) + USERS.index(user) / 10 + np.log10(at) + seed / 100)


def results(seeds: int = 3, labels: tuple[str, ...] = ("pdgd", "PairRank_C", "offline RankNet")) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for label in labels:
        for data in DATA:
            for user in USERS:
                for seed in range(seeds):
                    for at in ROUNDS:
                        found = value(label, data, user, seed, at)
                        row = {
                            "run": f"{label}{data}{user}{seed}",
                            "label": label,
                            "data": data,
                            "user": user,
                            "seed": seed,
                        }
                        blocks = {f"block_size@{rank}": 1 + rank / at for rank in (1, 5, 10)}
                        blocks = {**blocks, "blocks": found} if label == "PairRank_C" else {}
                        rows.append({**row, "round": at, "online.cndcg": found, **blocks})
    return table_of(rows)


def test_lines_are_the_means_and_bands_the_standard_errors() -> None:
    figure = figures.learning_curves(results(), "online.cndcg")
    assert len(figure.axes) == len(DATA) * len(USERS)
    for axes, (data, user) in zip(figure.axes, [(d, u) for d in DATA for u in USERS], strict=True):
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert set(lines) == {"pdgd", "PairRank_C", "offline RankNet"}
        for label, line in lines.items():
            expected = [np.mean([value(str(label), data, user, seed, at) for seed in range(3)]) for at in ROUNDS]
            np.testing.assert_allclose(np.asarray(line.get_ydata(), float), expected)
            assert list(np.asarray(line.get_xdata())) == list(ROUNDS)
        assert len(axes.collections) == 3
        height = axes.collections[0].get_paths()[0].get_extents().height
        assert height == pytest.approx(2 + 2 * 0.01 / 3**0.5)  # two decades, and an error of .01/√3 on both sides


def test_panels_are_named_by_data_and_user() -> None:
    axes = figures.learning_curves(results(), "online.cndcg").axes
    assert [a.get_title(loc="left") for a in axes] == ["perfect", "navigational", "", ""]
    assert [a.get_ylabel().splitlines()[0] for a in axes[::2]] == ["synthetic:mslr", "Yahoo"]


def test_every_learner_looks_different_and_references_are_broken_lines() -> None:
    labels = tuple(f"learner {i}" for i in range(18))
    lines = figures.learning_curves(results(1, (*labels, "offline RankNet")), "online.cndcg").axes[0].get_lines()
    assert len({(line.get_color(), str(line.get_linestyle()), str(line._dash_pattern)) for line in lines}) == 19  # type: ignore[attr-defined]
    assert lines[0].get_linestyle() == "-"
    assert lines[-1].get_linestyle() == "--"


def test_block_sizes_by_rank_and_block_counts_by_user() -> None:
    sizes = paper_figures.block_sizes(results(), "PairRank_C")
    assert [line.get_label() for line in sizes.axes[0].get_lines()] == ["rank 1", "rank 5", "rank 10"]
    np.testing.assert_allclose(np.asarray(sizes.axes[0].get_lines()[2].get_ydata(), float), [11, 2, 1.1])
    for axes in sizes.axes:  # the largest block of each row is within the panel
        assert axes.get_ylim()[1] > 11
    counts = figures.by_user(results(), "blocks", "PairRank_C", "blocks")
    assert [axes.get_title(loc="left") for axes in counts.axes] == ["synthetic:mslr", "Yahoo"]
    assert [line.get_label() for line in counts.axes[0].get_lines()] == list(USERS)


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(InvalidParameter, match="no lines to draw"):
        figures.line_figure({}, "x", "y")
    with pytest.raises(InvalidParameter, match="no run has a value of 'cosine'"):
        figures.learning_curves(results(), "cosine")
    with pytest.raises(InvalidParameter, match="'pdgd' has no block sizes"):
        paper_figures.block_sizes(results(), "pdgd")


def test_files_are_whole_hold_their_words_and_repeat_byte_for_byte(tmp_path: Path) -> None:
    png, svg = figures.save(figures.learning_curves(results(), "online.cndcg"), tmp_path / "new" / "a")
    again = figures.save(figures.learning_curves(results(), "online.cndcg"), tmp_path / "b")
    assert (png.name, svg.name) == ("a.png", "a.svg")
    assert png.read_bytes() == again[0].read_bytes()
    assert svg.read_bytes() == again[1].read_bytes()
    texts = {"".join(node.itertext()).strip() for node in ElementTree.parse(svg).iter() if node.tag.endswith("text")}
    assert {"PairRank_C", "pdgd", "offline RankNet", "navigational", "rounds", "cumulative NDCG"} <= texts
    content = png.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width > height > 500
    assert content[-8:-4] == b"IEND"
    assert struct.unpack(">I", content[-4:])[0] == zlib.crc32(b"IEND")
