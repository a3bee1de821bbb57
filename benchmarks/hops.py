"""The road of a round in the lab, function by function: `python -m benchmarks.hops [LEARNER]`.

A hop is a function of rankloop that one has to open to follow a steady round of `rankloop compare LEARNER`: those on
the way from the command to the loop, and those that the round then passes through, each once. Kernels, where the work
is done, are counted apart, where Python enters them: what they call among themselves is machine code. To be seen they
run as plain Python here, so the watched process starts with `NUMBA_DISABLE_JIT=1`; `road` sees to that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROUNDS = 400  # enough that most have neither a checkpoint nor a progress bar to move
DATA = "synthetic:mq2008?queries=6&vali=4&test=6&features=8"  # so few queries that the first rounds have met them all


class Hop(NamedTuple):
    """A function on the road."""

    file: str  # below src/rankloop
    function: str
    calls: int  # in one round; 0 on the way to the loop

    @property
    def kernel(self) -> bool:
        """Whether work is done there, in machine code."""
        return self.file.startswith("kernels")


def road(learner: str = "pairrank", user: str = "navigational") -> list[Hop]:
    """The hops of the median round, by their number, in the order of their first call."""
    found = subprocess.run(
        [sys.executable, "-m", "benchmarks.hops", "--watch", learner, user],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [Hop(*hop) for hop in json.loads(found.stdout)]


def _watch(learner: str, user: str) -> list[Hop]:
    """Run the command, and note each call of a round; a round begins where the loop asks `simulate` for it."""
    import rankloop
    from rankloop.cli import main as command
    from rankloop.lab.runs.simulate import simulate

    package = f"{Path(str(rankloop.__file__)).parent}{os.sep}"
    way_in: list[tuple[str, str]] = []
    rounds: list[dict[tuple[str, str], int]] = [{}]

    def name_of(frame: FrameType) -> tuple[str, str]:
        file = frame.f_code.co_filename.removeprefix(package).replace(os.sep, "/")
        return file, frame.f_code.co_qualname.replace(".<locals>", "")

    def ours(frame: FrameType | None) -> bool:
        return frame is not None and frame.f_code.co_filename.startswith(package)

    def on_call(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not ours(frame) or frame.f_code.co_name.startswith("<"):
            return
        caller = frame.f_back
        if frame.f_code is simulate.__code__:
            rounds.append({})
            way_in.clear()
            while caller is not None:  # who called whom up to here
                if ours(caller) and not caller.f_code.co_name.startswith("<"):
                    way_in.insert(0, name_of(caller))
                caller = caller.f_back
        elif caller is not None and ours(caller) and name_of(caller)[0].startswith("kernels"):
            return
        rounds[-1][name_of(frame)] = rounds[-1].get(name_of(frame), 0) + 1

    asked = ["compare", learner, "--data", DATA, "--user", user, "--rounds", str(ROUNDS)]
    sys.setprofile(on_call)
    try:
        with redirect_stdout(sys.stderr):
            command(asked)
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    if len(rounds) < ROUNDS:
        raise SystemExit(f"rounds of {learner} are compiled (`compiled_rounds`): there is no road between two of them")
    median = sorted(rounds[-ROUNDS // 2 :], key=len)[ROUNDS // 4]
    return [Hop(*name, 0) for name in way_in] + [Hop(*name, calls) for name, calls in median.items()]


def main() -> None:
    """Print the road."""
    if sys.argv[1:2] == ["--watch"]:
        print(json.dumps(_watch(*sys.argv[2:])))
        return
    hops = road(*sys.argv[1:])
    for number, hop in enumerate(hops, 1):
        times = f"  x {hop.calls}" if hop.calls > 1 else "  (on the way to the loop)" if not hop.calls else ""
        print(f"{number:3}  {hop.file:45} {hop.function}{times}")
    kernels = sum(hop.kernel for hop in hops)
    print(f"{len(hops) - kernels} hops and {kernels} kernels in {len({hop.file for hop in hops})} files")


if __name__ == "__main__":
    main()
