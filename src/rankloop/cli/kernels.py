"""`rankloop compile`."""

from __future__ import annotations

import sys
import time

from cyclopts import App

from rankloop.cli import _out
from rankloop.core.errors import InvalidParameter


def add_to(app: App) -> None:
    """Register the command."""
    app.command(compile_kernels, name="compile")


def compile_kernels(*learners: str, json: bool = False) -> None:
    """Compile the kernels that the service needs, ahead of the first request.

    Machine code is kept in a cache, so this takes a minute a learner once, and a moment from then on. Run it after an
    install or in the Dockerfile; else the first ranker of each learner answers with your order until it is compiled.
    Exit code 1 if a learner fails, or if there is no place to keep the code.

    Example: rankloop compile hybrid pairrank

    Example: RANKLOOP_KERNELS=/var/cache/rankloop rankloop compile

    Parameters
    ----------
    learners
        Names from `rankloop learners`, with parameters if wanted: `pairrank?pairs=matched`; all if none is given.
    json
        Print JSON.
    """
    try:
        from rankloop.service.control.rankers import complete
        from rankloop.service.ranking.kernel_compilation import compile_kernels as compile_for
        from rankloop.service.training import evidence
        from rankloop.wire.rankers import Spec
    except ModuleNotFoundError as error:
        raise InvalidParameter(f"the service needs {error.name}; pip install 'rankloop[service]'") from None
    from rankloop.cli.lab import parsed_learners
    from rankloop.core.registry import LEARNERS, learner_class
    from rankloop.kernels._jit import cache_folder

    wanted = parsed_learners(learners or list(LEARNERS), None)
    seconds: dict[str, float] = {}
    failed: dict[str, str] = {}
    with _out.progress_bars() as bars:
        bar = bars.add_task("compiling", total=len(wanted))
        evidence.compile_kernels()
        for text, (name, parameters) in zip(learners or list(LEARNERS), wanted, strict=True):
            bars.update(bar, description=f"compiling {name}")
            features = ["a", "b", "c"] if learner_class(name).contextual else []
            began = time.perf_counter()
            try:
                compile_for(complete(Spec(learner=name, parameters=parameters, features=features)))
                seconds[text] = time.perf_counter() - began
            except Exception as error:  # one that needs what is not installed does not keep the others from it
                failed[text] = f"{type(error).__name__}: {error}"
            bars.advance(bar)
    folder = cache_folder()
    if json:
        _out.print_json({"folder": folder and str(folder), "seconds": seconds, "failed": failed})
    else:
        for text, why in failed.items():
            _out.people.print(f"{text}: {why}", highlight=False, soft_wrap=True)
        where = f"machine code is in {folder}" if folder else "it cannot be kept: the next process compiles anew"
        print(f"{len(seconds)} of {len(wanted)} learners in {sum(seconds.values()):.1f} s; {where}")
    if failed or folder is None:
        sys.exit(1)
