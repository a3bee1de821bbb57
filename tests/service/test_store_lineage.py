"""Where what is known comes from, as the store has it: also of stores that were written before anyone asked."""

from __future__ import annotations

import pytest

from rankloop.service.storage import lineage, open_database, schema
from rankloop.service.storage.database import Connection


def test_an_older_store_tells_as_much_as_it_knows(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rankers of an earlier release: never touched; rolled back and reset; older than `origins`."""
    at = next(i for i, one in enumerate(schema.MIGRATIONS) if any("TABLE generations" in sql for sql in one))
    database = open_database(store_url)
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:at])
        schema.migrate(database)

    def fill(connection: Connection) -> None:
        for name, generation, epoch in (("plain", 10, 10), ("moved", 12, 11), ("ancient", 5, 5)):
            row = (name, b"{}", 1.0, epoch, generation, 1, 1)
            connection.insert("rankers", "name, spec, created, epoch, generation, revision, learning", [row])
        began = [("plain", 10, 10, 0), ("moved", 10, 10, 0), ("moved", 11, 10, 7), ("moved", 12, 11, 9)]
        columns = "ranker, generation, epoch, seq, state, created"
        connection.insert("origins", columns, [(*one, b"state", 2.0) for one in began])

    connection = database.connect()
    with connection.transaction():
        fill(connection)
    connection.close()
    assert schema.migrate(database) == len(schema.MIGRATIONS) - at
    found = database.read(lambda c: {name: lineage.beginnings(c, name) for name in ("plain", "moved", "ancient", "no")})
    assert [(one.how, one.seq, one.knows(20)) for one in found["plain"]] == [("made", 0, 20)]
    told = [("made", 0, 20), ("rollback", 7, None), ("reset", 9, 11)]  # to which version it went nobody wrote down
    assert [(one.how, one.seq, one.knows(20)) for one in found["moved"]] == told
    assert [(one.how, one.created) for one in found["ancient"]] == [("made", 1.0)]
    assert found["no"] == []
    newest = database.read(lineage.latest)
    assert {name: (number, one.generation) for name, (number, one) in newest.items()} == {
        "plain": (1, 10),
        "moved": (3, 12),
        "ancient": (1, 5),
    }
    database.close()
