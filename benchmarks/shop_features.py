"""NDCG that declared features reach in a shop, as a share of what the simulated visitors really go by."""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.shop_world import Features, Shop, visits
from rankloop.core.registry import make

KINDS: tuple[Features, ...] = ("by hand", "declared", "static")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--visits", type=int, default=4000)
    parser.add_argument("--seeds", default="10-12", help="first-last; choose on others than these")
    parser.add_argument("--learners", default="pairrank,hybrid")
    given = parser.parse_args()
    first, last = (int(part) for part in given.seeds.split("-"))
    seeds = range(first, last + 1)
    print(f"NDCG@10 of the last quarter of {given.visits} visits, seeds {first} to {last}, ± standard error\n")
    print("| learner | features | first tenth | last quarter | of hand-made |")
    print("| --- | --- | --- | --- | --- |")
    for name in given.learners.split(","):
        curves = {}
        for kind in KINDS:
            curves[kind] = np.stack([visits(Shop(seed), make(name), kind, given.visits) for seed in seeds])
            early = curves[kind][:, : given.visits // 10].mean(axis=1)
            late = curves[kind][:, -given.visits // 4 :].mean(axis=1)
            share = late / curves["by hand"][:, -given.visits // 4 :].mean(axis=1)
            spread = late.std(ddof=1) / np.sqrt(len(late)) if len(late) > 1 else 0.0
            row = (f"{early.mean():.3f}", f"{late.mean():.3f} ± {spread:.3f}", f"{share.mean():.3f}")
            print(f"| {name} | {kind} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
