"""Published click-model parameters, from a file of that shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rankloop.clicks.files import read_published
from rankloop.core.errors import DataError, UnknownName

MANY = [0.01 * (i + 1) for i in range(12)]  # more than ten: "10" sorts before "2"
WHOLE: dict[str, dict[str, dict[str, Any]]] = {
    "CM": {"q": {"attraction": MANY}},
    "DCM": {"q": {"attraction": [0.5, 0.4, 0.3], "stop_by_rank": [0.6, 0.5, 1.0]}},
    "PBM": {"q": {"attraction": [0.5, 0.4, 0.3], "examination": [1.0, 0.5, 0.2]}},
    "UBM": {"q": {"attraction": [0.5, 0.4, 0.3], "examination": [[0.2, 0.2, 1.0], [0.9, 0.2, 0.8], [0.7, 0.6, 0.5]]}},
    "DBN": {"q": {"attraction": [0.5, 0.4, 0.3], "satisfaction": [0.9, 0.8, 0.7], "abandon": 0.1}},
    "CCM": {
        "q": {
            "attraction": [0.5, 0.4, 0.3],
            "continue_no_click": 0.9,
            "continue_click_irrelevant": 0.8,
            "continue_click_relevant": 0.1,
        }
    },
}


def written(folder: Path, content: Any) -> Path:
    path = folder / "models.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_each_model_means_what_its_numbers_say(tmp_path: Path) -> None:
    """Chance to be read, for the list 2, 0, 1: rank 2 after document 2 (attraction .3), rank 3 after 0 (.5) as well."""
    models = {name: queries["q"] for name, queries in read_published(written(tmp_path, WHOLE)).items()}
    assert models["CM"].click_probabilities("q", ["10", "2"]) == pytest.approx([0.11, 0.89 * 0.03])
    examined = {
        "DCM": [1, 1 - 0.3 * 0.6, (1 - 0.3 * 0.6) * (1 - 0.5 * 0.5)],
        "PBM": [1, 0.5, 0.2],
        "DBN": [1, 0.9 * (1 - 0.3 * 0.7), 0.9**2 * (1 - 0.3 * 0.7) * (1 - 0.5 * 0.9)],
    }
    go_on = [0.7 * 0.9 + 0.3 * (0.7 * 0.8 + 0.3 * 0.1), 0.5 * 0.9 + 0.5 * (0.5 * 0.8 + 0.5 * 0.1)]
    examined["CCM"] = [1, go_on[0], go_on[0] * go_on[1]]
    clicked_second = 0.5 * (0.3 * 0.9 + 0.7 * 0.8)
    first_only, none = 0.3 * (1 - 0.9 * 0.5), 0.7 * (1 - 0.8 * 0.5)
    examined["UBM"] = [1, 0.3 * 0.9 + 0.7 * 0.8, first_only * 0.7 + clicked_second * 0.6 + none * 0.5]
    for name, wanted in examined.items():
        assert models[name].examination_probabilities("q", ["2", "0", "1"]) == pytest.approx(wanted), name


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        ("{", DataError, "not JSON"),
        ([], DataError, "where names and what they hold were expected"),
        ({"PMB": {}}, UnknownName, "did you mean 'PBM'"),
        ({"PBM": {"q": {"attraction": [0.5]}}}, DataError, "PBM, query q: no 'examination'"),
        ({"CM": {"q": {"attraction": ["x"]}}}, DataError, "CM, query q: 'attraction' is"),
        ({"CM": {"q": {"attraction": []}}}, DataError, "give a number for each document"),
        ({"CM": {"q": {"attraction": [1.5]}}}, DataError, r"query q: attraction_ holds 1\.5"),
        ({"CM": {"q": {"attraction": [float("nan")]}}}, DataError, "holds nan"),
        ({"UBM": {"q": {"attraction": [0.5], "examination": [1.0]}}}, DataError, "a row and a column for each rank"),
        ({"DBN": {"q": {"attraction": [0.5], "satisfaction": [0.5, 0.5, 0.5], "abandon": 0}}}, DataError, "shape"),
        ({"DBN": {"q": {"attraction": [0.5], "satisfaction": [0.5], "abandon": [0, 1]}}}, DataError, "query q"),
        ({"CM": {"q": 3}}, DataError, "CM, query q: 3 where names"),
    ],
)
def test_what_is_wrong_is_named(content: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=words):
        read_published(written(tmp_path, content))
