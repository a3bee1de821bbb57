"""Each thing that `rankloop doctor` recognizes, provoked; docs/operations.md has the table of them."""

from __future__ import annotations

import errno
import http.server
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from rankloop.service import doctor
from rankloop.service.doctor import Finding, examine
from rankloop.service.doctor import service as checks
from rankloop.service.ranking.model import fresh_state
from rankloop.service.settings import Settings
from rankloop.service.storage import Writer, keys, open_database, rankers, schema
from rankloop.wire.rankers import Spec

SPEC = Spec(learner="pairrank", features=["a", "b"])


def states(findings: Iterable[Finding], name: str) -> list[str]:
    return [one.state for one in findings if one.name == name]


def only(findings: Iterable[Finding]) -> Finding:
    (one,) = findings
    assert one.state == "ok" or one.remedy, one
    return one


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a ranker in it."""
    path = tmp_path / "shop.db"
    database = open_database(str(path))
    schema.migrate(database)
    writer = Writer(database, {})
    writer.do(lambda connection: rankers.add_ranker(connection, "shop", SPEC, fresh_state(SPEC), time.time()))
    writer.close()
    database.close()
    return path


def looked_at(path: Path | str, **settings: object) -> list[Finding]:
    return list(checks.store(Settings(store=str(path), **settings)))  # type: ignore[arg-type]


# -- the installation ----------------------------------------------------------------------------------------------


def test_an_old_python() -> None:
    assert only(doctor.python((3, 10, 2))).state == "error"


def test_a_python_of_32_bits() -> None:
    found = only(doctor.python(bits=32))
    assert (found.state, "64" in found.remedy) == ("error", True)


def test_a_package_that_is_missing() -> None:
    (missing, _) = doctor.packages(["numpy>=1.26", "surely-not-there>=2"])
    assert (missing.state, missing.text) == ("error", "surely-not-there is not installed")
    assert missing.remedy == "pip install 'surely-not-there>=2'"


def test_a_package_that_is_too_old_or_too_new() -> None:
    (old, new, _) = doctor.packages(["numpy>=99", "scipy<1"])
    assert (old.state, new.state) == ("error", "error")
    assert re.match(r"numpy is \d.*, but must be >=99", old.text)


def test_an_extra_that_is_not_whole() -> None:
    (extra, _) = doctor.packages(['surely-not-there>=2; extra == "neural"', 'nor-this; extra == "dev"'])
    assert (extra.name, extra.state) == ("extras", "note")
    assert extra.remedy.endswith(doctor.install("neural"))


def test_an_installation_that_did_not_come_from_an_index_is_extended_where_it_came_from() -> None:
    """There may be no release that an index has."""
    checkout = '{"dir_info": {"editable": true}, "url": "file:///home/me/my%20rankloop"}'
    assert "/home/me/my rankloop" in doctor.install("neural", checkout)
    assert "rankloop[neural]" not in doctor.install("neural", checkout)
    wheel = '{"archive_info": {}, "url": "file:///tmp/rankloop-0.1.0-py3-none-any.whl"}'
    assert "'/tmp/rankloop-0.1.0-py3-none-any.whl[neural]'" in doctor.install("neural", wheel)
    assert "'rankloop[neural]'" in doctor.install("neural", "{}")


def test_code_that_is_not_compiled() -> None:
    assert states(doctor.kernels({"NUMBA_DISABLE_JIT": "1"}), "jit") == ["error"]
    assert states(doctor.kernels({}), "jit") == []


def test_machine_code_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # a folder can be made nowhere in it, even by root
    code = "from rankloop.service import doctor as i; print([f.state for f in i.kernels()])"
    asked = {**os.environ, "RANKLOOP_KERNELS": str(tmp_path / "file" / "kernels"), "PYTHONWARNINGS": "ignore"}
    said = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "['error']"


def test_nothing_compiled_yet(tmp_path: Path) -> None:
    found = only([doctor.cached(tmp_path)])
    assert (found.state, "rankloop compile" in found.remedy) == ("note", True)


def test_too_much_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LARGE", 10)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "f.nbc").write_bytes(b"x" * 11)
    assert only([doctor.cached(tmp_path)]).state == "warning"


def test_threads_that_fight_each_other() -> None:
    assert only(doctor.threads({"OPENBLAS_NUM_THREADS": "8"})).state == "warning"
    assert list(doctor.threads({"OMP_NUM_THREADS": "1"})) == []


# -- the machine ---------------------------------------------------------------------------------------------------


def test_a_variable_that_is_no_setting() -> None:
    found = only(checks.settings({"RANKLOOP_WORKRES": "3", "RANKLOOP_KERNELS": "/x"}))
    assert (found.state, found.remedy) == ("warning", "did you mean RANKLOOP_WORKERS?")


def test_a_setting_that_cannot_be_read() -> None:
    found = only(checks.settings({"RANKLOOP_PORT": "eighty"}))
    assert (found.state, found.text) == ("error", "RANKLOOP_PORT is 'eighty'")


class Other(http.server.BaseHTTPRequestHandler):
    answer = (200, b"hello")

    def do_GET(self) -> None:
        self.send_response(self.answer[0])
        self.end_headers()
        self.wfile.write(self.answer[1])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[Callable[[int, bytes], int]]:
    """Programs that have a port and say one thing; the port."""
    servers = []

    def start(status: int, body: bytes) -> int:
        handler = type("Says", (Other,), {"answer": (status, body)})
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_port

    yield start
    for one in servers:
        one.shutdown()
        one.server_close()


def test_a_port_that_another_program_has(listener: Callable[[int, bytes], int]) -> None:
    found = only(checks.port(Settings(port=listener(200, b"hello"))))
    assert (found.state, "--port" in found.remedy) == ("error", True)


def test_a_port_that_a_rankloop_has(listener: Callable[[int, bytes], int]) -> None:
    ready, waiting = listener(200, b'{"status": "ready"}'), listener(503, b'{"status": 503, "detail": "stopping"}')
    assert only(checks.port(Settings(port=ready))).state == "ok"
    assert only(checks.port(Settings(port=waiting))).state == "warning"


def test_an_address_of_another_machine() -> None:
    assert only(checks.port(Settings(host="192.0.2.1", port=8080))).state == "error"


def test_everybody_may_come_and_there_is_no_key() -> None:
    assert only(checks.keys(Settings(host="0.0.0.0"))).state == "error"
    assert list(checks.keys(Settings(host="0.0.0.0"), stored=1)) == []
    assert list(checks.keys(Settings())) == []


def test_a_disk_that_is_full_or_nearly() -> None:
    rooms = [only(checks.room(free, Path("/x"))).state for free in (10 * 2**20, 500 * 2**20, 50 * 2**30)]
    assert rooms == ["error", "warning", "ok"]


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert only(checks.disk(tmp_path / "new" / "folder")).state == "error"


def test_a_file_system_of_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = f"/dev/sda / ext4 rw 0 0\nserver:/home {tmp_path} nfs4 rw 0 0\n"
    assert checks.file_system(tmp_path / "a", mounts) == "nfs4"
    assert checks.file_system(Path("/usr"), mounts) == "ext4"
    monkeypatch.setattr(checks, "file_system", lambda _: "nfs4")
    assert states(checks.disk(tmp_path), "file system") == ["error"]


def test_a_slow_disk(tmp_path: Path) -> None:
    assert [only(checks.sync_time(seconds)).state for seconds in (0.2, 0.001)] == ["warning", "ok"]
    assert states(checks.syncing(tmp_path), "fsync")


def test_a_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    found = only(checks.syncing(tmp_path))
    assert (found.name, found.state) == ("fsync", "error")
    assert "No space left" in found.text


def test_options_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANKLOOP_PORT", raising=False)
    found = [one for one in examine(port=70_000) if one.name == "options"]
    assert [one.state for one in found] == ["error"]
    assert "70000" in found[0].text.replace(",", "")


def test_little_memory_and_few_files() -> None:
    assert only(checks.memory(300 * 2**20)).state == "warning"
    assert only(checks.memory(8 * 2**30)).state == "ok"
    assert only(checks.files(256)).state == "warning"
    assert list(checks.files(4096)) == []


def test_a_clock_of_another_year() -> None:
    assert only(checks.clock(0.0)).text == "the clock says 1970-01-01"
    assert list(checks.clock()) == []


# -- the store -----------------------------------------------------------------------------------------------------


def test_a_store_that_is_well(store: Path) -> None:
    found = looked_at(store)
    assert {one.state for one in found} == {"ok"}
    assert f"{store}: 1 ranker" in [one.text for one in found]


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    assert states(looked_at(tmp_path / "new.db"), "store") == ["note"]
    assert states(looked_at("mysql://x"), "store") == ["error"]
    assert not (tmp_path / "new.db").exists()  # nothing is changed


def test_a_store_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    (found,) = [one for one in looked_at(tmp_path / "no" / "shop.db") if one.name == "store"]
    assert (found.state, str(tmp_path / "no") in found.text) == ("error", True)
    assert not (tmp_path / "no").exists()


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear doctor, " * 500)
    assert states(looked_at(tmp_path / "letter.txt"), "store") == ["error"]
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE x (y)")
    assert states(looked_at(tmp_path / "other.db"), "store") == ["note"]


def test_a_damaged_file(store: Path) -> None:
    with store.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    assert "error" in states(looked_at(store), "store")


def test_a_log_that_is_never_emptied(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LARGE_LOG", 100)
    reader = sqlite3.connect(store)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM rankers").fetchall()
    writer = sqlite3.connect(store)
    writer.execute("UPDATE rankers SET revision = revision + 1")
    writer.commit()
    assert "warning" in states(looked_at(store), "store")


def test_a_store_of_another_release(store: Path) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute("DELETE FROM migrations WHERE id = (SELECT MAX(id) FROM migrations)")
    assert states(looked_at(store), "store") == ["note"]
    with sqlite3.connect(store) as connection:
        connection.executemany("INSERT INTO migrations (id) VALUES (?)", [(1000,), (1001,)])
    assert states(looked_at(store), "store") == ["error"]


def test_a_server_that_cannot_be_reached() -> None:
    found = looked_at("postgresql://nobody:secret@127.0.0.1:1/none")
    assert states(found, "store") == ["error"]
    assert "secret" not in str(found)


def test_clocks_that_differ(store: Path) -> None:
    assert [only(checks.apart(seconds, "the other")).state for seconds in (-30.0, 30.0)] == ["warning"] * 2
    assert list(checks.apart(0.5, "the other")) == []
    with sqlite3.connect(store) as connection:
        later = time.time() + 3600
        connection.execute(
            "INSERT INTO impressions"
            " (id, ranker, epoch, number, created, closes, digest, learn, body, answer, shown, open)"
            " VALUES ('x', 'shop', 0, 0, ?, ?, x'', 1, x'', x'', x'', 0)",
            (later, later),
        )
    assert states(looked_at(store), "clock") == ["warning"]


def test_rankers_that_suffer(store: Path) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE rankers SET learning = 0")
        connection.execute("UPDATE snapshots SET state = x'00'")
        connection.execute("INSERT INTO quarantine VALUES ('shop', 0, 3, 1, 'it hung', 0)")
    assert sorted(states(looked_at(store), "rankers")) == ["error", "note", "warning"]


def test_an_open_door_with_a_store(store: Path) -> None:
    assert states(looked_at(store, host="0.0.0.0"), "keys") == ["error"]
    database = open_database(str(store))
    writer = Writer(database, {})
    writer.do(lambda connection: keys.add(connection, keys.StoredKey("0" * 64, "me", "admin", 0.0)))
    writer.close()
    database.close()
    assert states(looked_at(store, host="0.0.0.0"), "keys") == []


# -- the command ---------------------------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from rankloop.cli import main; main()"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RANKLOOP_") or name[9:] in ("KERNELS",)
    }
    return subprocess.run([sys.executable, "-c", code, "doctor", *arguments], env=kept, capture_output=True, text=True)


def test_the_command_says_what_to_do(store: Path, tmp_path: Path) -> None:
    well = command("--store", str(store), "--port", "0")
    assert (well.returncode, well.stderr) == (0, "")
    assert "0 errors, 0 warnings" in well.stdout
    (tmp_path / "letter.txt").write_text("Dear doctor, " * 500)
    ill = command("--store", str(tmp_path / "letter.txt"), "--port", "0", "--json")
    assert ill.returncode == 1
    found = {(one["name"], one["state"]) for one in json.loads(ill.stdout)}
    assert ("store", "error") in found
