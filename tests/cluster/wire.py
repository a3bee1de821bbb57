"""The wire between hosts: one process that carries IP packets from namespace to namespace, and breaks as it is told.

`python -m tests.cluster.wire PID=ADDRESS …` gives each namespace a TUN device with that address. Every line on its
input is a direction and what becomes of it, `{"from": …, "to": …, "open": false, "loss": 0.3, "delay": 0.2}`, and is
answered by a line once it holds. Directions are apart: a partition may be one way. The kernel has `netem` for that
where it is built in; here it need not be, and nothing outside the namespaces is touched.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time
from typing import NamedTuple

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
NAME = "wire"
PACKET = 65536
MOST = 100_000  # packets under way; what is more is lost, as in any network
BITS = 24  # of the network that all are in


class Way(NamedTuple):
    """What becomes of packets in one direction."""

    open: bool = True
    loss: float = 0.0  # share of the packets that does not arrive
    delay: float = 0.0  # seconds


def device(process: int, address: str) -> int:
    """A TUN device in the namespace of `process`: its descriptor here is the other end of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(f"/proc/{process}/ns/net") as other:
        _enter(libc, other.fileno())
        try:
            found = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(found, TUNSETIFF, struct.pack("16sH22x", NAME.encode(), IFF_TUN | IFF_NO_PI))
            for words in (
                f"addr add {address}/{BITS} dev {NAME}",
                f"link set {NAME} txqueuelen 10000 up",
                "link set lo up",
            ):
                subprocess.run(["ip", *words.split()], check=True)
        finally:
            _enter(libc, own.fileno())
    return found


def _enter(libc: ctypes.CDLL, namespace: int) -> None:
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Wire:
    """Reads what namespaces send, and writes it to the one it is for, later or never."""

    def __init__(self, ends: dict[str, int], seed: int = 0) -> None:
        self._ends = {socket.inet_aton(address): end for address, end in ends.items()}
        self._ways: dict[tuple[bytes, bytes], Way] = {}
        self._under_way: list[tuple[float, int, int, bytes]] = []  # due, order, end, packet
        self._sent = 0
        self._rng = random.Random(seed)
        self._words = b""

    def run(self) -> None:
        """Until the input ends."""
        with selectors.DefaultSelector() as ready:
            for end in self._ends.values():
                ready.register(end, selectors.EVENT_READ)
            os.set_blocking(0, False)
            ready.register(0, selectors.EVENT_READ)
            while True:
                wait = max(0.0, self._under_way[0][0] - time.monotonic()) if self._under_way else None
                for key, _ in ready.select(wait):
                    if key.fd == 0:
                        if not self._listen():
                            return
                    else:
                        self._carry(key.fd)
                while self._under_way and self._under_way[0][0] <= time.monotonic():
                    _, _, end, packet = heapq.heappop(self._under_way)
                    self._deliver(end, packet)

    def _listen(self) -> bool:
        told = os.read(0, PACKET)
        *lines, self._words = (self._words + told).split(b"\n")
        for line in lines:
            said = json.loads(line)
            ends = (socket.inet_aton(said.pop("from")), socket.inet_aton(said.pop("to")))
            self._ways[ends] = Way(**said)
            os.write(1, b"done\n")
        return bool(told)

    def _carry(self, end: int) -> None:
        for _ in range(64):  # the others get their turn
            try:
                packet = os.read(end, PACKET)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4:  # the kernel looks for IPv6 routers
                continue
            source, target = packet[12:16], packet[16:20]
            way = self._ways.get((source, target), Way())
            other = self._ends.get(target)
            if other is None or not way.open or (way.loss and self._rng.random() < way.loss):
                continue
            if not way.delay:
                self._deliver(other, packet)
            elif len(self._under_way) < MOST:
                self._sent += 1
                heapq.heappush(self._under_way, (time.monotonic() + way.delay, self._sent, other, packet))

    @staticmethod
    def _deliver(end: int, packet: bytes) -> None:
        try:
            os.write(end, packet)
        except OSError:
            return  # its queue is full, or its namespace is going: a packet is lost


def main() -> None:
    """Make the devices, say so, and carry."""
    ends = {}
    for word in sys.argv[1:]:
        process, _, address = word.partition("=")
        ends[address] = device(int(process), address)
    os.write(1, b"done\n")
    Wire(ends).run()


if __name__ == "__main__":
    main()
