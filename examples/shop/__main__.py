"""Run the shop: a service on a temporary store, several rankers side by side, shoppers, and the status page."""

from __future__ import annotations

import tempfile
import time
import webbrowser
from argparse import ArgumentParser
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from examples.embedded import HOST, address, embedded, interrupt_on_signals, listen, say
from examples.shop.shop import FEATURES, SHOWN, Shop
from examples.shop.shoppers import Shoppers
from rankloop.client import Client
from rankloop.core.errors import RankloopError
from rankloop.service.settings import Settings
from rankloop.wire.basics import Exposure
from rankloop.wire.rankers import Spec

COMPARED, EXPERIMENT = "hybrid", 30.0  # the ranker compared with the baseline, and after how many seconds
CHANGE = 120.0  # seconds after which tastes change
SETTINGS: dict[str, Any] = {"retention_days": 4 / 1440, "version_seconds": 30.0, "keep_versions": 8}
TEXT = """
A shop with simulated shoppers in front of a real service.

  {url}

The rankers. Each shopper visits all of them:
{rankers}

What to look at:
  0:00  hybrid starts with the shop's baseline ranking: its first rankings are those of production.
  0:30  it has learned what shoppers like: NDCG and clicks are above those of production. See "Weights" and "Latest
        impressions", and in "Details" how far it has moved. Under "Experiments" a comparison by clicks alone starts.
  2:00  tastes change. NDCG falls, it explores again, and recovers in a minute or two.
  then  press "Roll back" beside an old version: NDCG falls at once and is learned again; the rollback can be undone.
        Set hybrid to "shadow", or pause it, and see what users get.

Ctrl-C stops it. Everything is in a temporary folder, which is deleted.
"""
RANKERS = {
    "production": "the shop's baseline ranking; never learns",
    "hybrid": "learns a taste for all shelves and what is special about each, explores only where it is unsure",
    "hybrid-bounded": "the same, but no product moves more than three positions from the baseline ranking",
    "bubblerank": "exchanges neighbors, shelf by shelf: safe and slow, give it five minutes",
    "neural": "a small neural network that explores only where it is unsure",
}


def specs() -> dict[str, Spec]:
    """The rankers, as far as their libraries are installed."""
    forget = {"forget": 0.995}  # half of the evidence is forgotten within 140 impressions, because tastes change

    def spec(learner: str, parameters: dict[str, Any] | None = None, exposure: Exposure = "full") -> Spec:
        return Spec(
            learner=learner,
            parameters=parameters or {},
            features=list(FEATURES),
            k=SHOWN,
            exposure=exposure,
            window_seconds=30.0,
            guardrail=None,  # when tastes change, the baseline is better for a while and the guardrail would stop it
        )

    found = {
        "production": spec("base"),
        "hybrid": spec("hybrid", forget),
        "hybrid-bounded": spec("hybrid", forget, "bounded"),
        "bubblerank": spec("bubblerank", {"horizon": 2}),  # exchanges on little evidence, to be seen in minutes
    }
    return found | ({"neural": spec("olranknet", {"replay_size": 200})} if find_spec("torch") else {})


def run(port: int | None, minutes: float, rate: float, browser: bool) -> int:
    """Serve until the time is over or Ctrl-C; the number of failed calls."""
    with (
        tempfile.TemporaryDirectory(prefix="rankloop-shop-") as folder,
        listen(port) as listening,
        embedded(Settings(store=str(Path(folder, "shop.db")), host=HOST, **SETTINGS), listening) as engine,
        # The first start compiles kernels, which takes minutes on a busy machine.
        Client(address(listening), timeout=300.0, rank_timeout=300.0, queue=0) as client,
    ):
        for name, spec in specs().items():
            client.put_ranker(name, spec)
        while not all(one.ready for one in client.rankers()):
            time.sleep(0.1)
        url = f"{address(listening)}/#/{COMPARED}"
        say(TEXT.format(url=url, rankers="\n".join(f"  {name:18}{RANKERS[name]}" for name in specs())))
        if browser:
            webbrowser.open(url)
        shoppers = Shoppers(Shop(), list(specs()), client, rate, engine.history.judged)
        with suppress(KeyboardInterrupt), shoppers:
            _follow(shoppers, client, 60 * minutes)
        return shoppers.failures


def _follow(shoppers: Shoppers, client: Client, seconds: float) -> None:
    """Start the experiment, change the tastes, and report every minute."""
    start, reported, experiment = time.monotonic(), 0, 0
    while (now := time.monotonic() - start) < seconds:
        if shoppers.error is not None:
            raise shoppers.error
        if now >= EXPERIMENT and experiment == 0:
            experiment = _start_experiment(client)
        if experiment > 0 and _decided(client, experiment):
            experiment = -1
        if now >= CHANGE and shoppers.season == 0:
            for name in shoppers.rankers:
                client.keep_version(name, note="tastes change")
            shoppers.season = 1
            say("2:00  tastes change: bargains are out, what is new is in. Watch the curves fall and recover.")
        if now >= 60 * (reported + 1):
            reported += 1
            say(f"{reported}:00  NDCG of the last minute: {shoppers.summary()}")
        time.sleep(0.5)


def _start_experiment(client: Client) -> int:
    """The number of a new experiment; -1 if the ranker already has one, or cannot have one."""
    try:
        return client.start_experiment(COMPARED, "base", share=0.2, note="is it better than the baseline?").number
    except RankloopError:
        return -1


def _decided(client: Client, number: int) -> bool:
    """Whether the experiment is over; stops it at its verdict."""
    found = client.experiment(COMPARED, number)
    if found.state == "running" and found.verdict == "undecided":
        return False
    if found.state == "running":
        client.stop_experiment(COMPARED, number)
        low, high = found.interval
        say(
            f"experiment: users find {COMPARED} {found.verdict} than the baseline, by {found.preference:+.2f} "
            f"({low:+.2f} to {high:+.2f}) after {found.lists} interleaved rankings"
        )
    return True


def main() -> None:
    """Parse and run."""
    parser = ArgumentParser("python -m examples.shop", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--port", type=int, help="0 takes any free port; default: 8080, or a free port if it is taken")
    parser.add_argument("--rate", type=float, default=8.0, help="shoppers per second; each visits every ranker")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    options = parser.parse_args()
    if not 0 < options.rate <= 50:
        parser.error(f"rate is {options.rate:g}; give more than 0 and at most 50")
    interrupt_on_signals()
    say("starting the service; the first start compiles kernels")
    failures = 0
    try:
        with suppress(KeyboardInterrupt):
            failures = run(options.port, options.minutes, options.rate, not options.no_browser)
    except RankloopError as error:
        parser.exit(2, f"{error}\n")
    say("stopped; nothing is left behind")
    parser.exit(int(failures > 0), f"{failures} calls failed\n" if failures else None)


if __name__ == "__main__":
    main()
