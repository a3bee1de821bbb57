"""The wire does to packets what it is told, in the direction that it is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cluster.spaces import Network, lacking
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.skipif(lacking() is not None, reason=lacking() or "")]

# Sends numbered datagrams and counts what comes back of them, and how late; the other end sends back what it gets.
ECHO = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", 9)); print("up", flush=True)
while True:
    s.sendto(*s.recvfrom(2048))
"""
ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(float(sys.argv[3]))
sent, late = {}, []
for i in range(int(sys.argv[2])):
    sent[i] = time.monotonic(); s.sendto(str(i).encode(), (sys.argv[1], 9))
try:
    while len(late) < len(sent):
        i = int(s.recv(99)); late.append(time.monotonic() - sent[i])
except TimeoutError:
    pass
print(len(late), min(late, default=0.0))
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with (
        closing(Network(["one", "two"])) as made,
        made["two"].run([sys.executable, "-c", ECHO], stdout=subprocess.PIPE) as echo,
    ):
        try:
            assert echo.stdout is not None
            assert echo.stdout.readline() == b"up\n"
            yield made
        finally:
            echo.kill()


def asked(network: Network, count: int, patience: float) -> tuple[int, float]:
    """How many datagrams came back, and the least that one took."""
    command = [sys.executable, "-c", ASK, network["two"].address, str(count), str(patience)]
    with network["one"].run(command, stdout=subprocess.PIPE) as asking:
        said, _ = asking.communicate()
    back, least = said.split()
    return int(back), float(least)


def test_open_late_lossy_and_cut(network: Network) -> None:
    assert asked(network, 20, PATIENCE)[0] == 20
    network.ways("one", "two", delay=0.2)
    back, least = asked(network, 20, PATIENCE)
    assert back == 20
    assert least >= 0.4  # there and back
    network.ways("one", "two", loss=0.3)
    back, _ = asked(network, 400, 5.0)
    assert 120 < back < 275  # half of them, 196, ± 8 standard deviations
    network.ways("one", "two")
    network.way("two", "one", open=False)
    assert asked(network, 5, 0.3)[0] == 0
    network.way("two", "one")
    network.way("one", "two", open=False)
    assert asked(network, 5, 0.3)[0] == 0
    network.way("one", "two")
    assert asked(network, 5, PATIENCE)[0] == 5


def test_nobody_outside_knows_the_network(network: Network) -> None:
    routes = subprocess.run(["ip", "-4", "route"], capture_output=True, check=True).stdout.decode()
    assert network["one"].address.rpartition(".")[0] not in routes
