"""`rankloop import`: tables for people, specs for services."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.test_metarank import CONFIG
from tests.test_cli import printed_json, run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    return path


def test_a_configuration_of_metarank_is_told_feature_by_feature(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", "metarank", str(config), "--model", "shop") == 0
    told = capsys.readouterr().out
    assert "model shop: 10 taken over, 8 approximated, 10 not there" in told
    for words in ("price", "position bias is taken out", "words instead of n-grams", "PUT /v1/rankers/shop"):
        assert words in told


def test_programs_get_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop, small = printed_json(capsys, "import", "metarank", str(config), "--exposure", "full", "--catalog", "mine")
    assert (shop["ranker"], small["ranker"]) == ("shop", "small")
    assert (small["spec"]["exposure"], small["spec"]["catalog"]) == ("full", "mine")
    assert {one["verdict"] for one in shop["features"]} == {"taken over", "approximated", "not there"}


def test_settings_of_personalizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"rewardWaitTime": "PT1H", "learningMode": "Apprentice"}')
    assert run("import", "personalizer", str(path), "--ranker", "offers") == 0
    told = capsys.readouterr().out
    assert "window_seconds = 3600" in told
    assert "exposure = shadow" in told
    assert "PUT /v1/rankers/offers" in told


@pytest.mark.parametrize("command", ["metarank", "personalizer"])
def test_what_cannot_be_read_is_one_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken"
    path.write_text("{a: [")
    assert run("import", command, str(path)) == 2
    assert "broken: no " in capsys.readouterr().err
