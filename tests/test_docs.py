"""Docs cannot rot: help is generated, every learner has a page, the README's Python runs."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from docs import generate

from rankloop.checks import check_learner
from rankloop.core.learner import params
from rankloop.core.registry import LEARNERS, make

ROOT = Path(__file__).parents[1]


def test_the_help_page_is_what_the_commands_say() -> None:
    assert generate.TARGET.read_text("utf-8") == generate.page(), "run: python docs/generate.py"


def test_every_command_is_on_the_help_page() -> None:
    from rankloop import cli

    app = cli.build()
    commands = {name for name in app if not name.startswith("-")}
    documented = {command.split()[0] for command in generate.COMMANDS if command}
    assert commands == documented


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_has_a_place_on_its_familys_page(name: str) -> None:
    page = (ROOT / "docs" / "learners" / f"{LEARNERS[name].family}.md").read_text("utf-8")
    assert f"`{name}`" in page
    for parameter in params(make(name)):
        assert f"`{parameter}`" in page, f"{name}'s {parameter} is not on the page"


def test_every_method_of_the_client_is_on_its_page() -> None:
    from rankloop.client import Client

    page = (ROOT / "docs" / "client.md").read_text("utf-8")
    methods = {name for name in dir(Client) if not name.startswith("_") and callable(getattr(Client, name))}
    assert {name for name in methods if f"`{name}(" not in page} == set()


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        pytest.param("docs/lab.md", marks=pytest.mark.slow),
        "docs/features.md",
        "docs/library.md",
        "docs/interleaving.md",
        "docs/service.md",
        "docs/feedback.md",
        "docs/client.md",
        "docs/production.md",
        "docs/replay.md",
        "docs/warm.md",
        "docs/catalog.md",
        "docs/export.md",
        "docs/click-models.md",
        "docs/learners/bandits.md",
        "docs/observability.md",
        pytest.param("docs/learners/neural.md", marks=pytest.mark.slow),
    ],
)
def test_python_in_the_docs_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(ROOT / name)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})


def test_the_worked_example_of_a_learner_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = python_blocks(ROOT / "docs" / "add-a-learner.md")
    (tmp_path / "thompson.py").write_text(block, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    check_learner(importlib.import_module("thompson").LinearThompson)


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
