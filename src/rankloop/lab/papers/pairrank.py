"""The experiment of the PairRank paper (Jia et al., WWW 2021, section 4), and which of its claims were seen.

PairRank runs with the paper's rules (certainty of probabilities, disjoint adjacent pairs, no debiasing, exact refits);
a smaller comparison shows what the one-pass update changes. As in the paper, α and λ of PairRank and the step sizes of
the RankNet baselines are chosen on the validation part of each data set; PairRank_C and PairRank_R share theirs. PDGD,
DBGD and MGD keep their authors' settings, and an offline RankNet is the ceiling.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rankloop.lab.papers.pairrank_claims import CONSERVATIVE
from rankloop.lab.papers.pairrank_report import write
from rankloop.lab.papers.pairrank_settings import CONTENDERS, FULL, PROBES, QUICK, USERS, Chosen, Params, Scale
from rankloop.lab.runs.results import relabelled
from rankloop.lab.runs.sweep import carry_out
from rankloop.lab.runs.trial import Trial
from rankloop.lab.runs.workers import OnEvent


def reproduce(
    out: Path,
    data: list[str] | None = None,
    quick: bool = False,
    processes: int = 1,
    on_event: OnEvent | None = None,
) -> Path:
    """Run the experiment into the folder `out`, or go on with it; returns the path of the report."""
    scale = QUICK if quick else FULL
    return carry_out_at(replace(scale, data=tuple(data)) if data else scale, Path(out), processes, on_event)


def carry_out_at(scale: Scale, out: Path, processes: int = 1, on_event: OnEvent | None = None) -> Path:
    """The experiment at any scale: choose settings, run, compare with the refit, draw, judge, write."""
    chosen = _choose(scale, out, processes, on_event)
    trials, names = _trials(scale, chosen)
    table = relabelled(carry_out(trials, out / "pairrank.parquet", processes, on_event), names)
    refit = _refit(scale, chosen, out, processes, on_event)
    return write(out, scale, chosen, table, refit)


# -- runs ----------------------------------------------------------------------------------------------------------


def _choose(scale: Scale, out: Path, processes: int, on_event: OnEvent | None) -> Chosen:
    """(data, contender) -> the settings with the highest NDCG@10 on the vali part, mean over the users."""
    rounds = scale.choice_rounds
    trials = {
        (data, contender.name, i, user): Trial(
            contender.learner, data, user, settings, rounds, evaluate_on="vali", evaluations=1
        )
        for data in scale.data
        for contender in CONTENDERS
        if len(contender.settings) > 1
        for i, settings in enumerate(contender.settings)
        for user in USERS
    }
    table = carry_out(list(trials.values()), out / "choice.parquet", processes, on_event)
    quality = dict(zip(table["run"].to_pylist(), table["offline.ndcg@10"].to_pylist(), strict=True))
    chosen: dict[tuple[str, str], Params] = {}
    for data in scale.data:
        for contender in CONTENDERS:
            best = 0
            if len(contender.settings) > 1:
                runs = [
                    [trials[data, contender.name, i, user].id for user in USERS] for i in range(len(contender.settings))
                ]
                best = int(np.argmax([np.mean([quality[run] for run in ids]) for ids in runs]))
            like = chosen[data, contender.like] if contender.like else {}
            chosen[data, contender.name] = {**like, **contender.settings[best]}
    return chosen


def _trials(scale: Scale, chosen: Chosen) -> tuple[list[Trial], dict[str, str]]:
    """The runs of the paper's figures, and what each of their labels is called in them."""
    trials, names = [], {}
    for contender in CONTENDERS:  # in the order of the legends
        for data in scale.data:
            settings = chosen[data, contender.name]
            probes = PROBES.get(contender.learner, ("closeness",))
            made = [
                Trial(contender.learner, data, user, settings, scale.rounds, seed=seed, probes=probes)
                for user in USERS
                for seed in range(scale.seeds)
            ]
            trials += made
            names[made[0].label] = contender.name
    return trials, names


def _refit(
    scale: Scale,
    chosen: Chosen,
    out: Path,
    processes: int,
    on_event: OnEvent | None,
) -> pa.Table:
    data = scale.data[0]
    settings = chosen[data, CONSERVATIVE]
    trials, names = [], {}
    for update in ("onepass", "refit"):
        both = {**settings, "update": update}
        made = [
            Trial("pairrank", data, user, both, scale.refit_rounds, seed=seed)
            for user in USERS
            for seed in range(min(scale.seeds, 2))
        ]
        trials += made
        names[made[0].label] = update
    return relabelled(carry_out(trials, out / "refit.parquet", processes, on_event), names)
