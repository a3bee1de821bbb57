"""The ranker that `rankloop serve --example` makes, so that a newcomer has something to ask."""

from __future__ import annotations

from rankloop.wire.rankers import Spec

NAME = "example"
SPEC = Spec(
    features=["text_match", "popularity", "price"],
    k=3,
    exposure="bounded",
    displacement=2,
    window_seconds=600.0,
)

_LINES = """\
id=$(curl -s URL/v1/rankers/example/rank -d '{"query": "red shoes", "candidates": [
  {"id": "sandal", "features": {"text_match": 7.2, "popularity": 0.1, "price": 20}},
  {"id": "boot", "features": {"text_match": 6.8, "popularity": 0.9, "price": 80}},
  {"id": "sneaker", "features": {"text_match": 5.1, "popularity": 0.7, "price": 60}}]}' |
  tee /dev/stderr | cut -d'"' -f4)
curl -s URL/v1/feedback -d '{"event_id": "'$id'-1", "impression_id": "'$id'", "clicks": ["boot"], "final": true}'
curl -s URL/v1/rankers/example
"""


def lines(url: str) -> str:
    """Three lines of shell that rank, report a click and look at the ranker."""
    return _LINES.replace("URL", url)
