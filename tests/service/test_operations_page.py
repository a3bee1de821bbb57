"""What docs/operations.md tells people to do works, and what it tells them to watch exists."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from rankloop.service.observability.metrics import METRICS

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
        assert re.fullmatch(r"\d+[mh]", rule.get("for", "1m"))
        assert f"`{rule['alert']}`" in PAGE
