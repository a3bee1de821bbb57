"""Learner names and parameters as files and stores of commit a18f45f have them, in today's names."""

from __future__ import annotations

from typing import Any

RENAMED = {
    "start": "init",
    "trust": "prior_strength",
    "plus_one": "examine_next",
    "mismatch": "random_propensity",
    "reach": "radius",
    "finest": "smallest_step",
    "losses": "loss_scale",
    "worst": "avoided",
    "hard": "hard_lists",
}
RENAMED_OF = {
    "hybrid": {"memory": "memory_variance", "beta": "memory_alpha"},
    "adaptive": {"short": "fast_forget", "bar": "threshold", "past": "past_models"},
    "olranknet": {"memory": "replay_size", "reinit": "restart"},
    "ollambdarank": {"memory": "replay_size", "reinit": "restart"},
}
_LINEAR = {"certainty", "update", "loss", "ridge", "scale", "debias", "tempered", "delta", "bound", "batch"}
_MODELS = {"explore", "pairs", "examine_next", *_LINEAR}
_NETWORKS = {"line", "line_alpha", "validate", "pairs", "debias", "examine_next", "explore", "covariance", "update"}
_NETWORKS |= {"steps", "batch", "restart", "nets", "noise", "ridge", "units", "optimiser", "weights"}
REMOVED = {
    "pairrank": _LINEAR,
    "hybrid": {"max_items", *_MODELS},
    "adaptive": {"confidence", *_MODELS},
    "greedy": {"update", "ridge"},
    "epsilon-greedy": {"update", "ridge"},
    "olranknet": _NETWORKS,
    "ollambdarank": _NETWORKS,
    "lambdarank-labels": {"units", "optimiser"},
}
KEPT = {  # by the learners that took over options of others
    "pairrank-paper": {"explore", "pairs", "alpha", "prior", "ridge", "loss", "update", "bound", "examine_next"},
    "olranknet-paper": {"net", "width", "seed", "alpha", "prior", "rate", "update", "restart", "loss"},
    "perturbed-ensemble": {"net", "width", "seed", "rate", "nets", "noise", "replay_size"},
}


def current_learner(name: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Today's name and parameters of a learner that was saved by commit a18f45f, or since.

    >>> current_learner("pairrank", {"start": "base", "explore": "random", "update": "onepass", "tempered": True})
    ('pairrank', {'init': 'base', 'explore': 'blocks'})
    """
    own = RENAMED | RENAMED_OF.get(name, {})
    found = {own.get(key, key): value for key, value in parameters.items()}
    if isinstance(found.get("base_parameters"), dict):  # of the learner below a meta learner
        found["base_parameters"] = {RENAMED.get(key, key): value for key, value in found["base_parameters"].items()}
    if name == "pairrank":
        found |= {"explore": "blocks"} if found.get("explore") == "random" else {}
        if found.get("update") == "refit" or found.get("certainty") == "probability" or found.get("debias") == "none":
            name = "pairrank-paper"
    elif name in ("olranknet", "ollambdarank") and found.get("line") == "none":
        found["loss"] = "lambdarank" if name == "ollambdarank" else "ranknet"
        name = "perturbed-ensemble" if found.get("explore") == "ensemble" else "olranknet-paper"
    kept, removed = KEPT.get(name), REMOVED.get(name, set())
    return name, {key: value for key, value in found.items() if (kept is None or key in kept) and key not in removed}
