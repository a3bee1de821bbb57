"""An outside checker: it knows what clients were told, the tables, and when which host could be reached.

It asks nothing of the service, and learns the log again by itself. What it finds wrong is a sentence each.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rankloop.core import codec
from rankloop.service.offline.replay import open_store, rebuild
from tests.service.truths import folded, read, sent_id, snapshot_of

ASYNCHRONOUS = 1.0  # seconds: with `durability` feedback, lists so young may go with a PostgreSQL that crashes


class Away(NamedTuple):
    """A host could not be reached, whatever it did: it was dead, stopped or cut off from users."""

    host: str
    since: float
    until: float


@dataclass
class Verdict:
    """What was counted, and what is wrong."""

    told: Counter[str] = field(default_factory=Counter)  # answers of rank and feedback by what they said
    reasons: Counter[str] = field(default_factory=Counter)  # of lists in the caller's order
    outcomes: int = 0
    took: list[float] = field(default_factory=list)  # seconds of every list that was answered by a host within reach
    problems: list[str] = field(default_factory=list)


@dataclass
class Record:
    """What clients were told, by what it was about."""

    ranks: list[dict[str, Any]]
    sent: dict[str, dict[str, Any]]  # every event that was ever sent, by its id
    answers: dict[str, list[str]]  # event id -> every answer, in order


def read_record(path: Path) -> Record:
    """The record of one client."""
    record = Record([], {}, defaultdict(list))
    for line in path.read_text().splitlines():
        said = json.loads(line)
        if said["what"] == "rank":
            record.ranks.append(said)
            continue
        record.sent |= {event["event_id"]: event for event in said["events"]}
        for event, answer in said.get("results", {}).items():
            record.answers[event].append(answer)
    return record


class Stored:
    """The tables of one ranker's log, or of several."""

    def __init__(self, url: str, rankers: Sequence[str]) -> None:
        self.url, self.rankers = url, rankers
        self.impressions = {
            row[0]: row[1:] for row in read(url, "SELECT id, ranker, number, shown, seq, request_id FROM impressions")
        }
        self.events: dict[str, list[tuple[str, str, dict[str, Any]]]] = defaultdict(list)
        for event, impression, status, body in read(url, "SELECT event_id, impression_id, status, body FROM events"):
            self.events[sent_id(event)].append((impression, status, json.loads(body)))
        sql = "SELECT seq, impression_id, feedback FROM outcomes WHERE ranker = ? ORDER BY seq"
        self.outcomes = {name: read(url, sql, name) for name in rankers}
        self.heads = dict(read(url, "SELECT ranker, next_seq FROM log_offsets"))


def check(
    record: Record, url: str, rankers: Sequence[str], away: Sequence[Away] = (), crashes: Sequence[float] = ()
) -> Verdict:
    """Everything; `crashes` are the times at which PostgreSQL ended without a shutdown."""
    verdict, stored = Verdict(), Stored(url, rankers)
    lost = set(_lists(record, stored, crashes, verdict))
    verdict.problems += _answered(record, away, verdict)
    verdict.problems += _events(record, stored, lost, verdict)
    verdict.problems += _outcomes(stored, verdict)
    for name in rankers:
        verdict.problems += _state(stored, name)
    return verdict


def _answered(record: Record, away: Sequence[Away], verdict: Verdict) -> Iterator[str]:
    """A host within reach always answers: with the learner's list, or with the caller's own order."""
    by_request: dict[tuple[str, str], tuple[str | None, list[str]]] = {}
    for said in record.ranks:
        excused = any(one.host == said["host"] and one.since < said["until"] and said["at"] < one.until for one in away)
        if said["status"] != 200:
            if not excused:
                yield f"{said['host']} did not answer at {said['at']:.2f}: {said['error']}"
            verdict.told["not reached" if said["status"] == 0 else f"refused ({said['status']})"] += 1
            continue
        if not excused:
            verdict.took.append(said["until"] - said["at"])
        verdict.told["lists"] += 1
        wanted = said["sent"][: len(said["shown"])]
        if said["impression_id"] is None:
            verdict.told["lists without an impression"] += 1
        if said["fallback"]:
            verdict.reasons[said["reason"]] += 1
            if said["shown"] != wanted:
                yield f"a fallback of {said['host']} is not the caller's order: {said['shown']} for {wanted}"
        elif sorted(said["shown"]) != sorted(set(said["shown"]) & set(said["sent"])):
            yield f"a list of {said['host']} has items that were not sent, or one twice: {said['shown']}"
        if said["request"] and said["impression_id"]:
            key, answer = (said["ranker"], said["request"]), (said["impression_id"], said["shown"])
            if by_request.setdefault(key, answer) != answer:
                yield f"request {said['request']} was answered with two lists: {by_request[key]} and {answer}"


def _lists(record: Record, stored: Stored, crashes: Sequence[float], verdict: Verdict) -> Iterator[str]:
    """Lists that were shown are stored as they were shown; those that are not, the young ones of a crash, are given."""
    for said in record.ranks:
        name = said.get("impression_id")
        if name is None:
            continue
        if name in stored.impressions:
            if json.loads(stored.impressions[name][2]) != said["shown"]:
                verdict.problems.append(f"impression {name} is stored as another list than was shown")
        elif any(said["at"] - ASYNCHRONOUS < one and one - ASYNCHRONOUS < said["until"] for one in crashes):
            verdict.told["lists lost with PostgreSQL"] += 1
            yield name
        else:
            verdict.problems.append(f"impression {name}, shown by {said['host']} at {said['until']:.2f}, is lost")


def _events(record: Record, stored: Stored, lost: set[str], verdict: Verdict) -> Iterator[str]:
    """What was acknowledged is stored, once, as it was sent; a second time it is a duplicate."""
    for name, answers in record.answers.items():
        verdict.told.update(answers)
        event, rows = record.sent[name], stored.events.get(name, [])
        impression = event["impression_id"]
        if answers.count("accepted") + answers.count("late") > 1:
            yield f"event {name} was taken twice: {answers}"
        if set(answers) == {"orphan"}:
            if impression not in lost:
                yield f"event {name} was told that there is no impression {impression}, which was shown"
            continue
        if not set(answers) <= {"accepted", "late", "duplicate"}:
            yield f"event {name} was answered {answers}"
        if len(rows) != 1:
            yield f"event {name}, acknowledged as {answers}, is stored {len(rows)} times"
            continue
        ((where, status, body),) = rows
        if (where, body) != (impression, event):
            yield f"event {name} is stored as {body}, sent as {event}"
        if answers[0] not in (status, "duplicate"):
            yield f"event {name} was {answers[0]}, and is stored as {status}"
        final = status == "accepted" and event.get("final") and impression in stored.impressions
        if final and stored.impressions[impression][3] is None:
            yield f"event {name} ended impression {impression}, which has no outcome"
    for name in set(stored.events).difference(record.sent):
        yield f"event {name} is stored, and nobody sent it"


def _outcomes(stored: Stored, verdict: Verdict) -> Iterator[str]:
    """Numbers without gaps; an outcome a list; in it what was accepted, and nothing else."""
    accepted: dict[str, set[str]] = defaultdict(set)
    for stored_events in stored.events.values():
        for impression, status, event in stored_events:
            if status == "accepted":
                accepted[impression] |= set(event.get("clicks") or ())
    numbers = Counter((row[0], row[1]) for row in stored.impressions.values())
    for (ranker, number), times in numbers.items():
        if times > 1:
            yield f"number {number} of {ranker} was given to {times} lists: they were drawn alike"
    for ranker, rows in stored.outcomes.items():
        verdict.outcomes += len(rows)
        seqs = [row[0] for row in rows]
        if seqs != list(range(stored.heads[ranker])):
            found = next((i for i, seq in enumerate(seqs) if i != seq), len(seqs))
            yield f"outcomes of {ranker} have a gap at {found}, of {stored.heads[ranker]}"
        for impression, times in Counter(row[1] for row in rows).items():
            if times > 1:
                yield f"impression {impression} of {ranker} is learned {times} times"
        for seq, impression, feedback in rows:
            if impression not in stored.impressions:
                yield f"outcome {seq} of {ranker} is of an impression that is not there: {impression}"
                continue
            _, _, shown, own, _ = stored.impressions[impression]
            if own != seq:
                yield f"impression {impression} has outcome {own}, and outcome {seq} of {ranker} is of it"
            values = json.loads(feedback)
            clicked = {item for item, value in zip(json.loads(shown), values, strict=False) if value}
            if clicked != accepted[impression]:
                yield f"outcome {seq} of {ranker} has clicks {clicked}; accepted were {accepted[impression]}"


def _state(stored: Stored, ranker: str) -> Iterator[str]:
    """What was saved last has all that is logged, each outcome once: its bits are those of a plain fold of the log."""
    snapshot = snapshot_of(stored.url, ranker)
    if snapshot.seq != stored.heads[ranker]:
        yield f"{ranker} has {stored.heads[ranker]} outcomes, {snapshot.seq} of them learned and saved"
    arrays, _ = codec.loads(snapshot.state)
    plain = folded(stored.url, ranker, 0, snapshot.seq)
    for name in sorted(arrays.keys() | plain.keys()):
        if name not in arrays or name not in plain or arrays[name].tobytes() != plain[name].tobytes():
            yield f"{ranker}: {name} differs from the fold of the log"
    with open_store(stored.url) as database:
        replayed = rebuild(database, ranker)
    if not replayed.equal or replayed.seq != snapshot.seq:
        yield f"{ranker}: `rankloop replay` comes to another state than was saved: {replayed.compared}"
