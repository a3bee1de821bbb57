"""What docs/operations.md tells people to do works, and what it tells them to watch exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from rankloop.service.telemetry.metrics import METRICS
from tests.service.app_fixtures import Service, names, teach

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")
ALERTS = (ROOT / "docs" / "alerts.yml").read_text("utf-8")


def test_every_metric_of_the_alerts_is_declared() -> None:
    known = {metric.prefix + name: metric for name, metric in METRICS.items()}
    named = set(re.findall(r"\b(?:rankloop|process)_[a-z_]+", PAGE + ALERTS))
    assert len(named) > 10
    unknown = {name for name in named if re.sub("_(bucket|sum|count)$", "", name) not in known}
    assert not unknown
    for labels, name in re.findall(r"sum by \(([a-z, ]+)\) \(\w+\((rankloop_\w+)\[", ALERTS):
        metric = known[re.sub("_bucket$", "", name)]
        assert set(labels.split(", ")) <= {*metric.labels, "le"}, name


def test_every_alert_has_a_rule_that_can_be_loaded_and_words_on_the_page() -> None:
    (group,) = yaml.safe_load(ALERTS)["groups"]
    assert group["name"] == "rankloop"
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for"}
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
        assert f"`{rule['alert']}`" in PAGE


def test_a_copy_made_while_it_runs_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    ((command,),) = [re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)]
    with Service(tmp_path / "rankloop.db") as service:
        service.ready().put("shop", features=names(3), exposure="full", k=5)
        teach(service, "shop", 20)
        subprocess.run(
            ["bash", "-euc", command.replace("python", sys.executable, 1)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            check=True,
        )
        learned, state = service.settle("shop"), service.state("shop")
        service.put("after", learner="base")
    (tmp_path / "rankloop.db").rename(tmp_path / "lost.db")
    for end in ("-wal", "-shm"):
        (tmp_path / f"rankloop.db{end}").unlink(missing_ok=True)
    (tmp_path / "backup.db").rename(tmp_path / "rankloop.db")
    with Service(tmp_path / "rankloop.db") as again:
        again.ready()
        assert again.settle("shop") == learned
        assert again.state("shop") == state
        assert "after" not in {status["name"] for status in again.http.get("/v1/rankers").json()}
