"""Personalizer's messages, without a service: features of any JSON, exclusions, settings."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankloop.core.errors import InvalidInput
from rankloop.features import hashing
from rankloop.integrations import personalizer
from rankloop.integrations.personalizer import Action, RankRequest, crossed_rows, flattened, imported

# As Personalizer's documentation writes requests: features are lists of objects, which may hold objects.
DOCUMENTED = b"""{
  "contextFeatures": [
    {"timeOfDay": "Morning"},
    {"device": {"mobile": true, "Windows": "10"}, "latlong": [47.6, -122.1]}
  ],
  "actions": [
    {"id": "NewsArticle", "features": [{"type": "News", "tags": ["local", "weather"]}]},
    {"id": "SportsArticle", "features": [{"type": "Sports"}]},
    {"id": "EntertainmentArticle", "features": [{"type": "Entertainment", "length": 320}]}
  ],
  "excludedActions": ["SportsArticle"],
  "eventId": "75269AD0-BFEE-4598-8196-C57383D38E10",
  "deferActivation": false
}"""

JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def decoded(body: bytes) -> RankRequest:
    return msgspec.json.decode(body, type=RankRequest)


def test_a_documented_request_is_read() -> None:
    request = decoded(DOCUMENTED)
    assert [one.id for one in personalizer.allowed(request)] == ["NewsArticle", "EntertainmentArticle"]
    rows = personalizer.rows(request, request.actions, 4096).dense()
    assert rows.shape == (3, 4096)
    names, values = flattened(request.context_features)
    assert names == [
        "timeOfDay",
        "device.mobile",
        "device.Windows",
        *("latlong.0", "latlong.0~", "latlong.1", "latlong.1~"),
    ]
    assert values[:3] == ["Morning", True, "10"]
    # an action has its id and its own, each alone and crossed with the context's seven
    assert [np.count_nonzero(row) for row in rows] == pytest.approx([4 * 8, 2 * 8, 4 * 8], abs=2)


@given(JSON, st.lists(JSON, min_size=1, max_size=4))
def test_any_json_becomes_rows(context: Any, features: list[Any]) -> None:
    items = [(f"a{i}", one) for i, one in enumerate(features)]
    rows = crossed_rows(context, items, 64).dense()
    assert np.isfinite(rows).all()
    naive = np.zeros((len(items), 64))
    given = hashing.codes_of(*flattened(context))
    for i, (item, own) in enumerate(items):
        names, values = flattened(own)
        for code, value in zip(*hashing.codes_of(["=id", *names], [item, *values]), strict=True):
            naive[i, int(code) % 64] += value
            for other, weight in zip(*given, strict=True):
                cross = hashing.crossed(np.array([code]), np.array([other]))
                naive[i, int(cross[0, 0]) % 64] += value * weight
    assert rows == pytest.approx(naive)


def test_too_deep_and_too_much_is_refused() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(InvalidInput, match="levels deep"):
        flattened(deep)
    with pytest.raises(InvalidInput, match="send fewer"):
        crossed_rows(list(range(600)), [("a", list(range(1000)))], 64)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (RankRequest([Action("a"), Action("a")]), "occurs twice"),
        (RankRequest([Action("a")], excluded_actions=["b"]), "'b', which is not among"),
        (RankRequest([Action("a")], excluded_actions=["a"]), "all actions are excluded"),
        (RankRequest([Action(str(i)) for i in range(51)]), "at most 50"),
        (RankRequest([Action("a\0")]), "NUL"),
    ],
)
def test_what_cannot_be_ranked_is_named(request_: RankRequest, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        personalizer.allowed(request_)


def test_excluded_actions_keep_their_places_and_have_no_chance() -> None:
    asked = RankRequest([Action("a"), Action("b"), Action("c"), Action("d")], excluded_actions=["a", "c"])
    found = personalizer.response(asked, "e", "d", ["b", "d"], {"b": 0.25, "d": 0.75})
    assert [(one.id, one.probability) for one in found.ranking] == [("a", 0.0), ("d", 0.75), ("c", 0.0), ("b", 0.25)]
    assert found.reward_action_id == "d"
    unknown = personalizer.response(asked, "e", "d", ["b", "d"], None)
    assert b"probability" not in msgspec.json.encode(unknown)


def test_settings_of_a_resource_become_a_spec() -> None:
    spec, rows = imported(
        {
            "rewardWaitTime": "PT1H",
            "defaultReward": 0.1,
            "rewardAggregation": "sum",
            "explorationPercentage": 0.3,
            "learningMode": "Apprentice",
            "modelExportFrequency": "PT5M",
        }
    )
    assert (spec["window_seconds"], spec["default_reward"], spec["reward_aggregation"]) == (3600.0, 0.1, "sum")
    assert (spec["exposure"], spec["parameters"]) == ("shadow", {"gamma": 0.0, "epsilon": 0.3})
    assert {row.setting for row in rows} >= {"rewardWaitTime", "modelExportFrequency"}
    assert imported({})[0]["exposure"] == "full"
    assert (imported({})[0]["width"], imported({}, 1000)[0]["width"]) == (131_072, 1000)
    wrongs: list[Any] = [
        {"rewardWaitTime": "ten"},
        {"learningMode": "Late"},
        {"defaultReward": -1},
        [],
        {"rewardAggregation": 1},
    ]
    for wrong in wrongs:
        with pytest.raises(InvalidInput):
            imported(wrong)
