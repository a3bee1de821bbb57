"""The official client of Azure Personalizer, unchanged, against the service as it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import ErrorResponseException, RankableAction, RankRequest
from msrest.authentication import CognitiveServicesCredentials
from msrest.exceptions import HttpOperationError

from rankloop.integrations.personalizer import imported
from tests.service.running import Service, wait_for

KEY = "personalizer-key-0123456789"

RESOURCES: dict[str, dict[str, Any]] = {
    "personalizer": {},
    "apprentice": {"learningMode": "Apprentice"},
    "sums": {"rewardAggregation": "sum", "rewardWaitTime": "PT10S", "defaultReward": 0.25},
    "greedy": {"explorationPercentage": 0.2},
}


def spec(**settings: Any) -> dict[str, Any]:
    made, _ = imported(settings)
    return {"features": [], **made, "timeout_ms": 60_000}  # a service under test has others, unless told


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("personalizer")
    running = Service(folder / "log.txt", store=folder / "store.db", store_timeout_ms=60_000)
    running.start()
    for name, settings in RESOURCES.items():
        running.put_ranker(name, **spec(**settings))
    try:
        yield running
    finally:
        running.kill()


def client(service: Service, name: str = "", key: str = KEY) -> PersonalizerClient:
    path = f"/{name}" if name else ""
    return PersonalizerClient(f"http://127.0.0.1:{service.port}{path}", CognitiveServicesCredentials(key))


def request(event_id: str | None = None, **more: Any) -> RankRequest:
    actions = [
        RankableAction(id="news", features=[{"type": "News"}, {"length": 320}]),
        RankableAction(id="sports", features=[{"type": "Sports", "tags": ["live"]}]),
        RankableAction(id="weather", features=[{"type": "News"}]),
    ]
    context = [{"timeOfDay": "Morning"}, {"device": {"mobile": True}}]
    return RankRequest(actions=actions, context_features=context, event_id=event_id, **more)


def learned(service: Service, name: str) -> int:
    status = service.status(name)
    return int(status["learned_impressions"]) if status["unlearned_impressions"] == 0 else -1


def test_rank_and_reward(service: Service) -> None:
    personalizer = client(service)
    before = learned(service, "personalizer")
    found = personalizer.rank(request())
    assert sorted(one.id for one in found.ranking) == ["news", "sports", "weather"]
    assert found.ranking[0].id == found.reward_action_id
    assert sum(one.probability for one in found.ranking) == pytest.approx(1.0)
    assert personalizer.events.reward(found.event_id, 1.0) is None
    wait_for(lambda: learned(service, "personalizer") == before + 1, "the reward to be learned")


def test_a_reward_out_of_range_marks_its_event(service: Service) -> None:
    personalizer = client(service)
    found = personalizer.rank(request())
    before = service.status("personalizer")["events"]["needs_attention"]
    with pytest.raises(HttpOperationError) as caught:
        personalizer.events.reward(found.event_id, -0.5)
    assert caught.value.response.status_code == 400
    assert service.status("personalizer")["events"]["needs_attention"] == before + 1


def test_the_same_event_gets_the_same_decision(service: Service) -> None:
    personalizer = client(service)
    first = personalizer.rank(request("again"))
    assert personalizer.rank(request("again")).as_dict() == first.as_dict()
    with pytest.raises(ErrorResponseException) as caught:
        personalizer.rank(RankRequest(actions=[RankableAction(id="x", features=[])], event_id="again"))
    assert caught.value.error.error.code == "BadRequest"


def test_rewards_are_learned_by_context(service: Service) -> None:
    """In the morning news is liked, in the evening sports."""
    personalizer, liked = client(service), {"Morning": "news", "Evening": "sports"}
    before = learned(service, "personalizer")
    for t in range(120):
        time = ("Morning", "Evening")[t % 2]
        asked = request()
        asked.context_features[0]["timeOfDay"] = time
        found = personalizer.rank(asked)
        personalizer.events.reward(found.event_id, float(found.reward_action_id == liked[time]))
    wait_for(lambda: learned(service, "personalizer") == before + 120, "the rewards to be learned")
    for time, best in liked.items():
        asked = request()
        asked.context_features[0]["timeOfDay"] = time
        chances = {one.id: one.probability for one in personalizer.rank(asked).ranking}
        assert max(chances, key=chances.__getitem__) == best, chances
        assert chances[best] > 0.6


def test_excluded_actions_stay_where_they_are(service: Service) -> None:
    found = client(service).rank(request(excluded_actions=["news"]))
    assert found.ranking[0].id == "news"
    assert found.ranking[0].probability == 0.0
    assert found.reward_action_id in ("sports", "weather")


def test_an_apprentice_shows_the_first_action_and_learns(service: Service) -> None:
    personalizer = client(service, "apprentice")
    for _ in range(5):
        found = personalizer.rank(request())
        assert (found.reward_action_id, found.ranking[0].probability) == ("news", 1.0)
        personalizer.events.reward(found.event_id, 0.5)
    wait_for(lambda: learned(service, "apprentice") == 5, "the rewards to be learned")


def test_exploration_is_exactly_what_was_set(service: Service) -> None:
    """Nothing is learned yet: all are equal; with one rewarded, the others share a fifth."""
    personalizer = client(service, "greedy")
    found = personalizer.rank(request())
    assert [one.probability for one in found.ranking] == pytest.approx([1 / 3] * 3)
    personalizer.events.reward(found.event_id, 1.0)
    wait_for(lambda: learned(service, "greedy") == 1, "the reward to be learned")
    chances = sorted(one.probability for one in personalizer.rank(request()).ranking)
    assert chances == pytest.approx([0.2 / 3, 0.2 / 3, 1 - 0.4 / 3])


def values(service: Service, name: str) -> list[list[float]]:
    """What was learned from, list by list, the newest first."""
    lists = service.ask("GET", f"/v1/rankers/{name}/impressions?limit=10").json
    return [[item["value"] for item in one["items"]] for one in lists if one["outcome"] != "open" and one["learned"]]


@pytest.mark.slow
def test_rewards_add_up_and_silence_is_worth_the_default(service: Service) -> None:
    personalizer = client(service, "sums")
    one = personalizer.rank(request())
    personalizer.events.reward(one.event_id, 0.5)
    personalizer.events.reward(one.event_id, 0.25)
    wait_for(lambda: values(service, "sums") == [[0.75]], "the wait time to end")
    personalizer.rank(request())
    wait_for(lambda: values(service, "sums") == [[0.25], [0.75]], "the wait time to end")


@pytest.mark.slow
def test_a_deferred_event_counts_once_it_is_activated(service: Service) -> None:
    personalizer = client(service, "sums")
    known = len(values(service, "sums"))
    shown, never = (personalizer.rank(request(defer_activation=True)) for _ in range(2))
    personalizer.events.activate(shown.event_id)
    personalizer.events.activate(shown.event_id)  # twice is once
    wait_for(lambda: service.status("sums")["open_impressions"] == 0, "the wait time to end")
    wait_for(lambda: learned(service, "sums") == service.status("sums")["closed_impressions"], "it to be learned")
    assert values(service, "sums")[: len(values(service, "sums")) - known] == [[0.25]]
    personalizer.events.reward(never.event_id, 1.0)  # after the wait time: dropped, as Personalizer does


def test_errors_are_those_of_personalizer(service: Service) -> None:
    personalizer = client(service)
    with pytest.raises(HttpOperationError) as unknown:
        personalizer.events.reward("nobody", 1.0)
    assert unknown.value.response.status_code == 404
    with pytest.raises(HttpOperationError) as twice:
        personalizer.events.activate("nobody")
    assert twice.value.response.json()["error"]["code"] == "ResourceNotFound"
    with pytest.raises(ErrorResponseException) as wrong:
        personalizer.rank(RankRequest(actions=[RankableAction(id="a", features=[])] * 2))
    assert (wrong.value.response.status_code, wrong.value.error.error.code) == (400, "BadRequest")
    with pytest.raises(ErrorResponseException) as nobody:
        client(service, "nobody").rank(request())
    assert nobody.value.error.error.code == "ResourceNotFound"
    found = personalizer.rank(request())
    with pytest.raises(HttpOperationError) as negative:
        personalizer.events.reward(found.event_id, -1.0)
    assert "from 0 to 1" in negative.value.response.json()["error"]["message"]
    slots = service.ask("POST", "/personalizer/v1.1-preview.3/multislot/rank", {"actions": []})
    assert (slots.status, slots.json["error"]["code"]) == (501, "NotImplemented")


@pytest.mark.slow
def test_the_key_comes_in_azures_header(tmp_path: Path) -> None:
    """And one that is for one ranker says which is meant, as a Personalizer's key does."""
    keyed = Service(
        tmp_path / "log.txt",
        store=tmp_path / "store.db",
        store_timeout_ms=60_000,
        keys=f"{KEY}:rank+feedback+admin+read",
    )
    keyed.start(wait=False)
    try:
        wait_for(lambda: "ready" in keyed.log(), "the service")
        narrow = _key(tmp_path, "--rankers", "mine", "--scopes", "rank+feedback")
        only_rank = _key(tmp_path, "--scopes", "rank", name="other")
        made = httpx.put(
            f"http://127.0.0.1:{keyed.port}/v1/rankers/mine", json=spec(), headers={"Authorization": f"Bearer {KEY}"}
        )
        assert made.status_code == 201, made.text
        wait_for(lambda: _works(keyed, narrow), "the key to be known")
        with pytest.raises(ErrorResponseException) as wrong:
            client(keyed, key="no-such-key-0123456789").rank(request())
        assert wrong.value.response.status_code == 401
        with pytest.raises(HttpOperationError) as refused:
            client(keyed, "mine", key=only_rank).events.reward("x", 1.0)
        assert refused.value.response.status_code == 403
    finally:
        keyed.kill()


def _works(keyed: Service, key: str) -> bool:
    try:
        found = client(keyed, key=key).rank(request())
    except ErrorResponseException:
        return False
    client(keyed, key=key).events.reward(found.event_id, 1.0)
    return True


def _key(folder: Path, *options: str, name: str = "narrow") -> str:
    command = [sys.executable, "-c", "from rankloop.cli import main; main()", "keys", "create", name, *options]
    run = subprocess.run([*command, "--store", str(folder / "store.db")], capture_output=True, text=True, check=True)
    return run.stdout.strip()
