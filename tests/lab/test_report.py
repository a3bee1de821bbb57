"""The page stands alone, shows what it was given and nothing else."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rankloop.core.errors import CodecError, DataError
from rankloop.lab.plots.report import (
    Block,
    Claims,
    Code,
    Judged,
    Picture,
    Section,
    Table,
    Text,
    render,
    tally,
    write_markdown,
    write_report,
)

NASTY = """<script>alert("1")</script> & 'more'"""
SEEN = Judged("A is above B", "0.7 and 0.6", "seen", "4.2")
UNDECIDED = Judged("D", "0.1 ± 0.2", "undecided")
NOT_SEEN, UNTESTED = Judged("B", "0.1", "not seen"), Judged("C", "no runs", "not tested")


class Page(HTMLParser):
    """Elements in order with their attributes, and all text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a.svg"
    path.write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    return path


def full_page(picture: Path) -> str:
    blocks: list[Block] = [
        Text(NASTY),
        Code(NASTY),
        Picture(picture, NASTY, NASTY),
        Table(NASTY, ("learner", NASTY), [(NASTY, "0.5 ± 0.1")]),
        Claims([Judged(NASTY, NASTY, "seen", NASTY), UNDECIDED, NOT_SEEN, UNTESTED]),
    ]
    return render(NASTY, [Section(NASTY, blocks), Section("Second", [])], NASTY)


def test_every_element_is_closed_and_nothing_given_becomes_html(picture: Path) -> None:
    page = Page(full_page(picture))
    assert page.open == []
    assert "script" not in [tag for tag, _ in page.elements]
    # title, h1, subtitle, link, heading, text, code, caption, table caption, column, cell and the claim's three
    assert page.text.count(NASTY) == 14


def test_nothing_is_loaded_from_elsewhere(picture: Path) -> None:
    content = full_page(picture)
    for _, attributes in Page(content).elements:
        for name in ("src", "href"):
            if name in attributes:
                assert str(attributes[name]).startswith(("data:", "#"))
    assert "http" not in content
    assert "url(" not in content
    assert "@import" not in content


def test_a_picture_is_put_in_whole_with_words_for_who_cannot_see_it(picture: Path) -> None:
    (image,) = [attributes for tag, attributes in Page(full_page(picture)).elements if tag == "img"]
    kind, _, content = str(image["src"]).partition(";base64,")
    assert kind == "data:image/svg+xml"
    assert base64.b64decode(content) == picture.read_bytes()
    assert image["alt"] == NASTY


def test_a_picture_that_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="SVG or PNG"):
        Picture(tmp_path / "a.pdf", "", "").html()
    with pytest.raises(CodecError, match=r"none\.png: No such file"):
        Picture(tmp_path / "none.png", "", "").html()


def test_links_lead_to_the_sections(picture: Path) -> None:
    elements = Page(full_page(picture)).elements
    links = [attributes["href"] for tag, attributes in elements if tag == "a"]
    assert links == [f"#{attributes['id']}" for tag, attributes in elements if tag == "section"]


def test_verdicts_are_counted_and_marked(picture: Path) -> None:
    assert (
        tally([SEEN, NOT_SEEN, UNDECIDED, UNTESTED, SEEN]) == "5 claims: 2 seen, 1 undecided, 1 not seen, 1 not tested."
    )
    assert tally([]) == "0 claims: none."
    marks = [attributes["class"] for tag, attributes in Page(full_page(picture)).elements if tag == "span"]
    assert marks == ["verdict seen", "verdict undecided", "verdict not-seen", "verdict not-tested"]


def test_claims_in_markdown_keep_their_cells() -> None:
    lines = Claims([Judged("a | b\nc", NASTY, "not seen")]).markdown().splitlines()
    assert lines[-1] == ("| a \\| b c |  | &lt;script&gt;alert(\"1\")&lt;/script&gt; &amp; 'more' | **not seen** |")


def test_the_same_report_in_markdown_links_its_figures(tmp_path: Path) -> None:
    picture = Picture(tmp_path / "new" / "t" / "a.svg", "What it shows", NASTY)
    blocks: list[Block] = [Text(NASTY), Code("run"), picture, Table("T", ("a",), [("1",)]), Claims([SEEN])]
    page = write_markdown(tmp_path / "new" / "t.md", "Paper", [Section("S", blocks)], "Who").read_text("utf-8")
    assert page.startswith("# Paper\n\nWho\n\n## S\n\n&lt;script")
    assert "](t/a.png)\n\nWhat it shows\n" in page
    assert "```text\nrun\n```" in page
    assert "<script" not in page


def test_the_page_is_written_where_it_was_asked_for(tmp_path: Path) -> None:
    path = write_report(tmp_path / "new" / "report.html", "T", [Section("S", [Claims([SEEN])])])
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert "A is above B" in path.read_text("utf-8")
