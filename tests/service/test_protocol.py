"""What is sent before it is known who sends it has bounds: endless headers, requests that are never finished."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankloop.service.api.protocol import MOST_HEADERS
from tests.page.shown import Served
from tests.waiting import PATIENCE

BEGIN = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
RANK = b"POST /v1/rankers/none/rank HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("protocol")
    running = Served(folder / "store.db", request_seconds=3.0, idle_seconds=4)
    yield running
    running.stop()


@contextlib.contextmanager
def connected(served: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as sock:
        yield sock


def heard(sock: socket.socket) -> bytes:
    """Everything until the other side hangs up."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(65536):
            found += part
    return found


def refused(answer: bytes, status: int, *words: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"connection: close" in head
    problem = json.loads(body)
    assert set(problem) == {"error", "message", "request_id"}
    for word in words:
        assert word in problem["message"]


ENDLESS = {
    "one header": (BEGIN + b"X-Endless: ", b"a" * 65536),
    "a name": (BEGIN, b"a" * 65536),
    "many headers": (BEGIN, b"".join(b"X-%d: a\r\n" % i for i in range(5000))),
    "an address": (b"GET /", b"a" * 65536),
    "behind a body": (RANK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Endless: ", b"a" * 65536),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_does_not_end_is_ended(served: Served, what: str) -> None:
    """Before much of it was read: the parser takes time with the square of its length."""
    begin, more = ENDLESS[what]
    sent = 0
    with connected(served) as sock:
        sock.sendall(begin)
        try:
            while sent < 32 * 2**20:
                sent += sock.send(more)
        except ConnectionError:
            pass
        else:
            pytest.fail(f"{sent:,} bytes were taken")
    assert sent < 16 * 2**20  # what lies in the buffers of two sockets; on a machine with large ones, that too
    assert served.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (b"X-Long: " + b"a" * 40_000 + b"\r\n", "max_header_bytes"),
        (b"".join(b"X-%d: %s\r\n" % (i, b"a" * 1000) for i in range(40)), "max_header_bytes"),
        (b"".join(b"X-%d: a\r\n" % i for i in range(MOST_HEADERS)), "100"),
    ],
)
def test_a_head_that_is_too_large_is_told_so(served: Served, headers: bytes, words: str) -> None:
    with connected(served) as sock:
        sock.sendall(BEGIN + headers + b"\r\n")
        refused(heard(sock), 431, words)


def test_a_head_below_the_limits_is_read(served: Served) -> None:
    many = b"".join(b"X-%d: %s\r\n" % (i, b"a" * 300) for i in range(MOST_HEADERS - 2))
    with connected(served) as sock:
        sock.sendall(BEGIN + many + b"Connection: close\r\n\r\n")
        assert heard(sock).startswith(b"HTTP/1.1 200 ")


def test_a_request_that_is_never_finished_is_not_waited_for(served: Served) -> None:
    begun = [b"G", BEGIN, RANK + b"Content-Length: 100\r\n\r\n{", BEGIN + b"X-Slow: a"]
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connected(served)) for _ in begun]
        for sock, part in zip(socks, begun, strict=True):
            sock.sendall(part)
        for sock in socks:
            refused(heard(sock), 408, "request_seconds")


def test_a_request_byte_by_byte_is_not_waited_for_either(served: Served) -> None:
    with connected(served) as sock, contextlib.suppress(ConnectionError):
        for byte in BEGIN + b"X-Slow: " + b"a" * 20_000:
            sock.sendall(bytes([byte]))
            time.sleep(0.01)
        pytest.fail("all of it was taken")


def test_a_connection_on_which_nothing_comes_is_closed(served: Served) -> None:
    with connected(served) as silent, connected(served) as answered:
        answered.sendall(BEGIN + b"\r\n")
        assert heard(silent) == b""
        assert heard(answered).startswith(b"HTTP/1.1 200 ")


def test_a_web_socket_is_not_opened(served: Served) -> None:
    """Nothing is behind it, and a page of another site may try one without being asked for its origin."""
    key = b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    with connected(served) as sock:
        sock.sendall(BEGIN + b"Connection: Upgrade\r\n" + key + b"\r\n")
        assert not sock.recv(65536).startswith(b"HTTP/1.1 101 ")


def test_requests_on_one_connection_that_stays_open(served: Served) -> None:
    """The clock is for each request, and stands still between them."""
    with connected(served) as sock:
        for _ in range(4):
            sock.sendall(BEGIN)
            time.sleep(0.4)
            sock.sendall(b"\r\n")
            answer = sock.recv(65536)
            while not answer.endswith(b"}"):  # head and body may come apart
                answer += sock.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 ")
            time.sleep(0.4)


def test_one_answer_a_request_also_if_the_next_one_breaks_a_rule(served: Served) -> None:
    with connected(served) as sock:
        sock.sendall(BEGIN + b"\r\n" + BEGIN + b"X-Long: " + b"a" * 40_000 + b"\r\n\r\n")
        answers = heard(sock)
    assert answers.count(b"HTTP/1.1 200 ") <= 1
    assert not answers or answers.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 431 "))
