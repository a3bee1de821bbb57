"""Run the demo: a service on a store of its own, shoppers in a thread, and an end that leaves nothing behind."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankloop.client import Client
from rankloop.core.errors import InvalidParameter, RankloopError
from rankloop.core.registry import LEARNERS, learner_class
from rankloop.demo.shop import FEATURES, SHOWN, Shop
from rankloop.demo.shoppers import Shoppers
from rankloop.service.serving.engine import Engine
from rankloop.service.settings import Settings
from rankloop.service.supervisor.embedded import HOST, address, listening, server
from rankloop.wire.basics import Exposure
from rankloop.wire.rankers import Spec

TRIED, TRIAL = "hybrid", 30.0  # the ranker that is compared with the shop's order, and after how many seconds
CHANGE = 120.0  # seconds after which tastes change
RETENTION = 4 / 1440  # days: what is older than four minutes goes, so that a demo may run for days
VERSIONS: dict[str, Any] = {"version_seconds": 30.0, "keep_versions": 8}  # something to roll back to, soon


def specs() -> dict[str, Spec]:
    """The rankers, side by side: what the shop shows without learning, and learners as far as they are installed."""
    forget = {"forget": 0.995}  # half of the evidence fades within 140 lists: tastes change

    def spec(learner: str, parameters: dict[str, Any] | None = None, exposure: Exposure = "full") -> Spec:
        return Spec(
            learner=learner,
            parameters=parameters or {},
            features=list(FEATURES),
            k=SHOWN,
            exposure=exposure,
            window_seconds=30.0,
            guardrail=None,  # when tastes change the shop's own order is better for a while: it would be the end of it
        )

    wanted = {
        "production": spec("base"),
        "hybrid": spec("hybrid", forget),
        "hybrid-bounded": spec("hybrid", forget, "bounded"),
        "bubblerank": spec("bubblerank", {"horizon": 2}),  # little evidence for an exchange: nobody watches for a day
        "neural": spec("olranknet", {"memory": 200}),  # lists it learns from again: those of the last half a minute
    }
    return {name: spec for name, spec in wanted.items() if _installed(spec.learner)}


def _installed(learner: str) -> bool:
    if learner not in LEARNERS:
        return False
    try:
        learner_class(learner)()
    except (ImportError, RankloopError):  # a neural one without its library
        return False
    return True


class Demo:
    """One demo, from `run` to its end.

    Parameters
    ----------
    port
        0 takes a free one; None 8080, or a free one if that is taken.
    minutes
        When to end; None goes on until Ctrl-C.
    rate
        Visits a second; every visit asks every ranker.
    tell
        Called with what happens, in words.
    """

    def __init__(self, port: int | None, minutes: float | None, rate: float, tell: Callable[[str], None]) -> None:
        if minutes is not None and not minutes > 0:
            raise InvalidParameter(
                f"minutes is {minutes:g}; give a number above 0, or leave it out to go on until Ctrl-C"
            )
        if not 0 < rate <= 50:
            raise InvalidParameter(f"rate is {rate:g} visits a second; it must be above 0 and at most 50")
        self.minutes, self.rate, self.tell = minutes, rate, tell
        self._socket = listening(8080 if port is None else port, any_free=port is None)
        self.url = address(self._socket)
        self.failures = 0

    def run(self, opened: Callable[[str], None]) -> None:
        """Serve until the time is over or Ctrl-C; `opened` is called with the address once it answers."""
        with _folder() as folder, self._socket:
            store = str(folder / "demo.db")
            engine = Engine(Settings(store=store, host=HOST, retention_days=RETENTION, **VERSIONS))
            self._server = server(engine)
            thread = threading.Thread(target=self._accompany, args=(engine, opened), name="rankloop-demo", daemon=True)
            thread.start()
            try:
                self._server.run(sockets=[self._socket])
            finally:
                self._server.should_exit = True
                thread.join(timeout=10.0)

    def close(self) -> None:
        """Give the port back, if it was never run."""
        self._socket.close()

    def _accompany(self, engine: Engine, opened: Callable[[str], None]) -> None:
        """Beside the service: make rankers, open the page, let shoppers come until the end."""
        try:
            # A first start compiles kernels, which takes minutes on a busy machine; simulated shoppers can wait.
            with Client(self.url, timeout=300.0, rank_timeout=300.0, queue=0) as client:
                while not (self._server.started or self._server.should_exit):
                    time.sleep(0.02)
                for name, spec in specs().items():
                    client.put_ranker(name, spec)
                while not (self._server.should_exit or all(one.ready for one in client.rankers())):
                    time.sleep(0.1)
                opened(f"{self.url}/#/{TRIED}")
                shoppers = Shoppers(Shop(), list(specs()), client, self.rate, engine.history.judged, self._closing)
                self._script(shoppers, client)
                self.failures = shoppers.failures
        except Exception as error:
            if not self._closing():
                self.failures += 1
                self.tell(f"the demo has stopped: {error}")
        finally:
            self._server.should_exit = True

    def _closing(self) -> bool:
        return self._server.should_exit

    def _script(self, shoppers: Shoppers, client: Client) -> None:
        """What happens when, until the time is over."""
        start, said, trial = time.monotonic(), 0, 0
        end = float("inf") if self.minutes is None else 60 * self.minutes
        with shoppers:
            while not self._server.should_exit and (now := time.monotonic() - start) < end:
                if shoppers.error is not None:
                    raise shoppers.error
                if now >= TRIAL and trial == 0:
                    trial = self._try(client)
                if trial > 0 and self._decided(client, trial):
                    trial = -1
                if now >= CHANGE and shoppers.season == 0:
                    for name in shoppers.rankers:
                        client.keep_version(name, note="tastes change")
                    shoppers.season = 1
                    self.tell(
                        "2:00  tastes change: bargains are out, what is new is in. Watch curves fall, and recover."
                    )
                if now >= 60 * (said + 1):
                    said += 1
                    self.tell(f"{said}:00  NDCG of the last minute: {shoppers.summary()}")
                time.sleep(0.5)

    def _try(self, client: Client) -> int:
        """The number of a new experiment; -1 if someone at the page was faster, or has put the ranker to shadow."""
        try:
            return client.start_experiment(TRIED, "base", share=0.2, note="is it better than the shop's order?").number
        except RankloopError:
            return -1

    def _decided(self, client: Client, trial: int) -> bool:
        """Whether the experiment is over: at its verdict, so that from then on no list is mixed."""
        found = client.experiment(TRIED, trial)
        if found.state == "running" and found.verdict == "undecided":
            return False
        if found.state == "running":
            client.stop_experiment(TRIED, trial)
            low, high = found.interval
            self.tell(
                f"proof: users find {TRIED} {found.verdict} than the shop's order, by {found.preference:+.2f} "
                f"({low:+.2f} to {high:+.2f}) after {found.lists} mixed lists"
            )
        return True


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rankloop-demo-") as folder:
        yield Path(folder)
