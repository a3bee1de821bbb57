"""Sources of click models for bandits to meet, and single runs with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankloop.clicks import Pairs, PositionBased, save
from rankloop.clicks.bandit_models import open_models
from rankloop.core.errors import DataError, InvalidParameter, UnknownName
from rankloop.lab.runs.bandit_trial import WARM_ROUNDS, BanditTrial


def test_a_fitted_model_gives_its_longest_queries_and_their_best_documents(tmp_path: Path) -> None:
    queries = ["short"] * 3 + ["long"] * 12
    pairs = Pairs.of(queries, [f"d{i:02d}" for i in [*range(3), *range(12)]])
    attraction = np.linspace(0.05, 0.75, 15)  # "long" comes first: its twelve have .05 to .6
    model = PositionBased().given(pairs, attraction_=attraction, examination_=np.linspace(1, 0.4, 10))
    save(model, tmp_path / "pbm.model")
    users = open_models(str(tmp_path / "pbm.model"))
    assert {name: list(queries) for name, queries in users.items()} == {"PBM": ["long"]}
    assert users["PBM"]["long"].attraction == pytest.approx(attraction[2:12])
    with pytest.raises(DataError, match="no such file"):
        open_models(str(tmp_path / "nothing.json"))
    with pytest.raises(InvalidParameter, match="no option 'docs'"):
        open_models("generated?docs=3")


def test_runs_repeat_and_start_where_they_should() -> None:
    def run(**changed: Any) -> Any:
        settings = {"start": "random", "rounds": 2000, "seed": 3, **changed}
        trial = BanditTrial("x", "bubblerank", "generated?documents=6", "CM", "2", **settings)
        return trial.run()

    one, again, other = (found.measures["regret"].tolist() for found in (run(), run(), run(seed=4)))
    assert one == again != other
    assert run(start="warm").last("wrong") < run(start="random", seed=5).last("wrong")
    safe = run(safety=True)
    assert safe.measures["regret"].tolist() == one  # measuring changes nothing
    assert (safe.last("unsafe"), WARM_ROUNDS) == (0, 20_000)
    with pytest.raises(UnknownName, match="no query is called '99'"):
        BanditTrial("x", "toprank", "generated", "CM", "99", rounds=5).run()
    with pytest.raises(InvalidParameter, match="rounds is 0"):
        BanditTrial("x", "toprank", "generated", "CM", "1", rounds=0)
