"""The service for an hour with an experiment, a guardrail and the page open: memory, lag, store size, latency."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

import httpx
import numpy as np

from benchmarks.common import children, machine, print_rows, resident_bytes, service
from rankloop.service.load_generator import LoadPlan, run, start

EVERY = 10.0  # seconds between samples
PROBE = 0.1  # seconds between probes


class Watch(threading.Thread):
    """Probes, and writes down what it sees."""

    def __init__(self, url: str, supervisor: int, store: Path, out: Path) -> None:
        super().__init__(daemon=True)
        self._url, self._supervisor, self._store, self._out = url, supervisor, store, out
        self.over = threading.Event()
        self.samples: list[dict[str, Any]] = []
        rng = np.random.default_rng(0)
        table = rng.random((20, 20)).round(4).tolist()
        self._body = json.dumps({"ids": [f"p{i}" for i in range(20)], "features": table, "query": "probe"})

    def run(self) -> None:
        begin, told, took, bad = time.monotonic(), time.monotonic(), [], 0
        with httpx.Client(timeout=30) as http:
            while not self.over.wait(PROBE):
                start = time.perf_counter()
                answer = http.post(f"{self._url}/v1/rankers/load/rank", content=self._body)
                took.append(time.perf_counter() - start)
                bad += answer.status_code != 200 or answer.json()["fallback"]
                if time.monotonic() - told >= EVERY:
                    told = time.monotonic()
                    self._sample(http, told - begin, took, bad)
                    took, bad = [], 0

    def _sample(self, http: httpx.Client, seconds: float, took: list[float], bad: int) -> None:
        status = http.get(f"{self._url}/v1/rankers/load").json()
        sizes = {path.name: path.stat().st_size for path in self._store.parent.glob(f"{self._store.name}*")}
        sample = {
            "seconds": seconds,
            "lag": status["unlearned_impressions"],
            "outcomes": status["closed_impressions"],
            "bad": bad,
        }
        sample |= {"open": status["open_impressions"], "store_mb": sum(sizes.values()) / 1e6}
        sample |= {
            f"{role}_mb": resident_bytes(pid) / 1e6
            for role, pid in zip(("ranks", "learns"), children(self._supervisor), strict=False)
        }
        sample |= {"p50_ms": float(np.median(took)) * 1e3, "p99_ms": float(np.quantile(took, 0.99)) * 1e3}
        self.samples.append(sample)
        with self._out.open("a") as file:
            file.write(json.dumps(sample) + "\n")


@contextmanager
def page(url: str) -> Iterator[bool]:
    """The page in a browser; False if there is none."""
    chromium = which("chromium") or which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        yield False
        return
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        browser.new_page().goto(f"{url}/#/load")
        yield True
        browser.close()


def draw(samples: list[dict[str, Any]], path: Path) -> None:
    """Memory, lag and latency over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    minutes = [sample["seconds"] / 60 for sample in samples]
    figure, (top, middle, bottom) = plt.subplots(3, 1, figsize=(8, 6.5), sharex=True, constrained_layout=True)
    for role in ("ranks", "learns"):
        top.plot(minutes, [sample.get(f"{role}_mb") for sample in samples], label=f"the process that {role}")
    top.set(ylabel="memory, MB", ylim=(0, None))
    top.legend(loc="lower right", frameon=False)
    middle.plot(minutes, [sample["lag"] for sample in samples], color="tab:green")
    middle.set(ylabel="outcomes not yet learned", ylim=(0, None))
    for name in ("p50", "p99"):
        bottom.plot(minutes, [sample[f"{name}_ms"] for sample in samples], label=f"{name} of the probe")
    bottom.set(ylabel="rank, ms", xlabel="minutes", yscale="log")
    bottom.legend(loc="upper right", frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Parse, run, print, draw."""
    parser = ArgumentParser("python -m benchmarks hour", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=150.0, help="requests a second, each with feedback")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir(), "rankloop-hour.jsonl"))
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--redraw", action="store_true", help="draw what --out holds already")
    options = parser.parse_args()
    if options.redraw:
        draw([json.loads(line) for line in options.out.read_text().splitlines()], options.figure)
        return
    options.out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="rankloop-hour-", dir="/var/tmp") as folder:
        store = Path(folder, "hour.db")
        with service(store) as one:
            plan = LoadPlan(url=one.url, candidates=20, features=20, rate=options.rate)
            plan = replace(plan, seconds=options.minutes * 60, learner="hybrid", connections=16)
            watch = Watch(one.url, one.pid, store, options.out)

            def accompany() -> None:
                """Once there is a ranker: an experiment on it, the page, and the watch."""
                while not httpx.get(f"{one.url}/v1/rankers/load").json().get("ready"):
                    time.sleep(0.5)
                terms = {"share": 0.2, "against": "base"}
                httpx.post(f"{one.url}/v1/rankers/load/experiments", json=terms).raise_for_status()
                watch.start()
                with page(one.url) as there:
                    sys.stderr.write(f"the page is {'open' if there else 'not open: no Chromium'}\n")
                    watch.over.wait()

            beside = threading.Thread(target=accompany, daemon=True)
            beside.start()
            report = start(run(plan))
            watch.over.set()
            watch.join(60)
            beside.join(60)
            trial = httpx.get(f"{one.url}/v1/rankers/load/experiments").json()[0]
            told = httpx.get(f"{one.url}/metrics").text.splitlines()
            reasons = [line for line in told if "rank_fallbacks_total{" in line]
    third = max(len(watch.samples) // 3, 1)
    first, last = watch.samples[:third], watch.samples[-third:]

    def mean(samples: list[dict[str, Any]], name: str) -> float:
        return float(np.mean([sample[name] for sample in samples if name in sample]))

    print(f"Machine: {machine()}, load generator on the same machine\n")
    print(f"{report.answered:,} lists, {sum(report.feedback_status.values()):,} events, errors {report.errors}, ")
    print(f"fallbacks {report.fallbacks}, worst lag {report.lag}, experiment {trial['lists']:,} lists\n")
    print("\n".join(reasons) + "\n")
    names = ("ranks_mb", "learns_mb", "lag", "p50_ms", "p99_ms")
    print_rows([{"": name, "first third": mean(first, name), "last third": mean(last, name)} for name in names])
    if options.figure:
        draw(watch.samples, options.figure)


if __name__ == "__main__":
    main()
