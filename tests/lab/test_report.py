"""Reports escape their texts and count verdicts."""

from __future__ import annotations

from pathlib import Path

from rankloop.lab.plots.report import (
    Block,
    ClaimResult,
    Code,
    Picture,
    Section,
    Table,
    Text,
    claims_table,
    plus_minus,
    tally,
    write_markdown,
)

NASTY = """<script>alert("1")</script> & 'more'"""
SUPPORTED = ClaimResult("A is above B", "0.7 and 0.6", "supported", "4.2")
REFUTED, UNTESTED = ClaimResult("B", "0.1", "refuted"), ClaimResult("C", "no runs", "not tested")


def test_the_page_has_everything_escaped(tmp_path: Path) -> None:
    figure = Picture(tmp_path / "figures" / "a.png", NASTY)
    table = Table(NASTY, (NASTY,), [(NASTY,)])
    blocks: list[Block] = [Text(NASTY), Code("a | b"), figure, table, claims_table([SUPPORTED])]
    page = write_markdown(tmp_path / "page.md", NASTY, [Section(NASTY, blocks)], NASTY).read_text("utf-8")
    assert "<script>" not in page
    assert "](figures/a.png)" in page
    assert "```text\na | b\n```" in page


def test_verdicts_are_counted_and_cells_cannot_end_early() -> None:
    assert tally([SUPPORTED, REFUTED, UNTESTED, SUPPORTED]) == "4 claims: 2 supported, 1 refuted, 1 not tested."
    assert tally([SUPPORTED]) == "1 claim: 1 supported."
    assert tally([]) == "0 claims: none."
    lines = claims_table([ClaimResult("a | b\nc", NASTY, "refuted")]).markdown().splitlines()
    assert lines[-1] == "| a \\| b c |  | &lt;script&gt;alert(\"1\")&lt;/script&gt; &amp; 'more' | refuted |"
    assert plus_minus(0.5, float("nan"), 1) == "0.5"
