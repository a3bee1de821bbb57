"""What the benchmark of readers compares must read the same, or its table says nothing."""

from __future__ import annotations

import numpy as np
from benchmarks.parsing import bodies, readers

from rankloop.service.ranking.features import RankCall


def test_all_readers_of_a_form_read_the_same() -> None:
    names, sent = bodies(7, 5)
    assert len(sent) == 6
    for form, body in sent.items():
        found = {who: read(body) for who, read in readers(form, names).items()}
        assert len(found) >= 2
        call = found.pop("service")
        assert isinstance(call, RankCall)
        assert call.rows is not None
        for who, (ids, rows) in found.items():
            assert ids == call.ids, (form, who)
            assert np.array_equal(rows.reshape(7, 5), call.rows), (form, who)
