"""Settings: from the environment, by argument, and refused with their name."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from rankloop.core.errors import InvalidParameter
from rankloop.service.settings import SCOPES, Settings, from_environment, is_loopback, parse_scopes

TOKEN = "0123456789abcdef"


def test_an_empty_environment_gives_the_defaults() -> None:
    assert from_environment({}) == Settings()
    assert from_environment({"OTHER_PORT": "1"}) == Settings()


def test_settings_survive_the_environment() -> None:
    """That is how worker processes learn of them."""
    other: dict[str, Any] = {"store": "x.db", "host": "::1", "keys": f"{TOKEN}:rank+admin", "learn": False}
    other |= {"hosts": "box", "origins": "http://box", "learn_in": "thread", "durability": "everything"}
    other |= {"adapters": "ubi", "archive": "log"}
    other |= {"log_format": "json", "webhook": "http://box/hook", "webhook_secret": "between us"}
    for entry in fields(Settings):
        if entry.name not in other:
            default: Any = entry.default
            other[entry.name] = default + (1 if entry.type == "int" else 0.125)
    changed = Settings(**other)
    assert all(getattr(changed, entry.name) != entry.default for entry in fields(Settings))
    assert from_environment(changed.environment()) == changed
    assert set(changed.environment()) == {f"RANKLOOP_{entry.name.upper()}" for entry in fields(Settings)}


def test_arguments_override_the_environment() -> None:
    environment = {"RANKLOOP_PORT": "9000", "RANKLOOP_STORE": "env.db", "RANKLOOP_LEARN": "1"}
    found = from_environment(environment, port=1234, store=None, learn=False)
    assert (found.port, found.store, found.learn) == (1234, "env.db", False)


@pytest.mark.parametrize("text", ["1", "true", "YES", "True"])
def test_true_values(text: str) -> None:
    assert from_environment({"RANKLOOP_LEARN": text}).learn is True


@pytest.mark.parametrize("text", ["0", "false", "no", "FALSE"])
def test_false_values(text: str) -> None:
    assert from_environment({"RANKLOOP_LEARN": text}).learn is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PORT", "http"),
        ("PORT", "80.5"),
        ("PORT", ""),
        ("LEARN", "perhaps"),
        ("LEASE_SECONDS", "3s"),
        ("WORKERS", "two"),
    ],
)
def test_unreadable_variables_are_named(name: str, text: str) -> None:
    with pytest.raises(InvalidParameter, match=f"RANKLOOP_{name} is '{text}'"):
        from_environment({f"RANKLOOP_{name}": text})


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("port", -1),
        ("port", 65536),
        ("workers", 0),
        ("max_body_bytes", 0),
        ("max_candidates", 0),
        ("max_features", -3),
        ("max_events", 0),
        ("lease_seconds", 0.0),
        ("retention_days", -0.5),
        ("store_timeout_ms", -1.0),
        ("lease_seconds", float("nan")),
        ("snapshot_seconds", float("nan")),
        ("refresh_seconds", float("inf")),
    ],
)
def test_invalid_settings_are_named(setting: str, value: Any) -> None:
    with pytest.raises(InvalidParameter, match=f"setting {setting} is {value}"):
        Settings(**{setting: value})


NUMBERS = [entry for entry in fields(Settings) if entry.type in ("int", "float")]


@pytest.mark.parametrize("entry", NUMBERS, ids=lambda entry: entry.name)
def test_every_number_has_a_range(entry: Any) -> None:
    bounds = entry.metadata["range"]
    assert bounds.least >= 0
    assert (entry.default == 0 and bounds.zero) or bounds.least <= entry.default <= bounds.most
    whole = entry.type == "int"
    wrong: list[Any] = [-1, bounds.most * 2, float("nan"), float("inf"), -float("inf"), "3", True, None]
    wrong += [1.5] if whole else []
    wrong += [0] if bounds.least > 0 and not bounds.zero else []
    for value in wrong:
        with pytest.raises(InvalidParameter, match=re.escape(f"setting {entry.name} is {value!r}; give ")) as error:
            Settings(**{entry.name: value})
        assert f"from {bounds.least:,.15g} to {bounds.most:,.15g}" in str(error.value)
    for value in (bounds.least, bounds.most, *([0] if bounds.zero else [])):
        fine: Any = int(value) if whole else value
        Settings(**{entry.name: fine})


@pytest.mark.parametrize("name", ["refresh_seconds", "snapshot_seconds", "store_timeout_ms", "feedback_timeout_ms"])
def test_zero_durations_are_refused(name: str) -> None:
    """It would make a thread run without a pause, or give up on everything at once."""
    with pytest.raises(InvalidParameter, match=f"setting {name} is 0.0; give a number from "):
        from_environment({f"RANKLOOP_{name.upper()}": "0"})


def test_unknown_adapters_are_named() -> None:
    assert Settings(adapters="").adapters == ""
    with pytest.raises(InvalidParameter, match=r"adapters.*'solr'"):
        Settings(adapters="ubi, solr")


def test_keys_are_read() -> None:
    parsed = Settings(keys=f"{TOKEN}:rank+feedback, {TOKEN}:with:colons:admin,").parsed_keys()
    assert parsed == {TOKEN: frozenset({"rank", "feedback"}), f"{TOKEN}:with:colons": frozenset({"admin"})}


@pytest.mark.parametrize("keys", ["short:rank", f"{TOKEN}", f":{TOKEN}", "rank", f"{TOKEN}:", f"{TOKEN}:root", ":rank"])
def test_invalid_keys_are_refused_without_showing_them(keys: str) -> None:
    with pytest.raises(InvalidParameter) as error:
        Settings(keys=keys)
    assert TOKEN not in str(error.value)
    assert "scope" in str(error.value)


def test_scopes() -> None:
    assert parse_scopes("+".join(SCOPES)) == set(SCOPES)
    assert parse_scopes("rank,feedback") == {"rank", "feedback"}
    for text in ("", "+", "rank+root", "Rank"):
        with pytest.raises(InvalidParameter):
            parse_scopes(text)


def test_loopback_addresses() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "localhost.example.org"]))
