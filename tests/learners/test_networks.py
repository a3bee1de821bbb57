"""Networks that users bring: the same results as the built-in one, whole states, and errors that help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rankloop
from rankloop.checks import check_learner
from rankloop.core import codec
from rankloop.core.errors import CodecError, Diverged, InvalidInput, InvalidParameter, UnknownName
from rankloop.core.learner import clone
from rankloop.core.types import Candidates, Feedback
from rankloop.learners.models import networks
from rankloop.learners.models.networks import network
from rankloop.learners.neural.neural_pdgd import NeuralPDGD
from rankloop.learners.neural.olranknet import OLRankNet
from rankloop.learners.neural.olranknet_paper import OLRankNetPaper
from rankloop.learners.neural.perturbed_ensemble import PerturbedEnsemble
from tests.learners.neural_rounds import evidence
from tests.learners.own_networks import Doubled, Small

D, M = 5, 8


def doubled(seed: int = 0) -> Doubled:
    return Doubled(D, M, network("two-layer", D, M, seed).start())


def lists(count: int) -> list[Candidates]:
    return [Candidates(f"q{t}", features=np.random.default_rng(t).random((9, D))) for t in range(count)]


def taught(learner: Any, rounds: int = 20) -> Any:
    for t, candidates in enumerate(lists(rounds)):
        rng = np.random.default_rng([3, t])
        shown = learner.rank(candidates, 4, rng)
        learner.learn(shown, Feedback.clicks(rng.integers(0, 2, 4)), rng)
    return learner


# -- the same network, built in and brought ------------------------------------------------------------------------


def alone(**given: Any) -> OLRankNetPaper:
    """A network that replays, without a linear model."""
    return OLRankNetPaper(width=M, **{"prior": 100.0, "rate": 0.1, "alpha": 0.03, "update": "replay", **given})


@pytest.mark.parametrize("line", [False, True])
def test_a_brought_network_with_the_same_weights_gives_the_same_results(line: bool) -> None:
    """Lists, scores, certain pairs and weights, round for round.

    PyTorch sums in another order, and in one of its own on every kind of CPU: scores agree to rounding, and a pair that
    is certain for one is certain for the other at an alpha that differs by a thousandth.
    """

    def made(**given: Any) -> Any:
        return OLRankNet(width=M, rate=0.5, **given) if line else alone(rate=0.5, **given)

    def network_of(learner: Any) -> Any:
        return learner.model_.network if line else learner.model_

    own, built_in = made(net=doubled(), alpha=0.05), made(alpha=0.05)
    bold, shy = made(net=doubled(), alpha=0.04995), made(net=doubled(), alpha=0.05005)
    if line:
        for learner in (own, built_in):
            learner.model_.evidence = evidence(1.0)
    random_lists, alike = 0, 0
    for t, candidates in enumerate(lists(40)):
        one, other = (learner.rank(candidates, 4, np.random.default_rng(t)) for learner in (own, built_in))
        random_lists += one.order.tolist() != built_in.best(candidates, 4).tolist()
        everyone = np.arange(candidates.n)
        found = built_in.certain(candidates, everyone)
        for learner in (bold, shy):
            learner.load(own.state())
        assert (shy.certain(candidates, everyone) <= found).all()
        assert (found <= bold.certain(candidates, everyone)).all()
        if (own.certain(candidates, everyone) == found).all():
            alike += 1
            assert one.order.tolist() == other.order.tolist()
        clicks = Feedback.clicks(np.random.default_rng(t).integers(0, 2, 4))
        for learner in (own, built_in):
            learner.learn(one, clicks, np.random.default_rng(t))
        assert own.score(candidates) == pytest.approx(built_in.score(candidates), abs=1e-4)
    hidden, ours, theirs = M * 2 * D, network_of(own), network_of(built_in)
    first = ours.weights_[0, :hidden].reshape(M, 2, D)
    assert first[:, 0] == pytest.approx(first[:, 1], abs=1e-5)  # the two copies move together
    assert first.mean(1).ravel() == pytest.approx(theirs.weights_[0, : M * D], abs=1e-5)
    assert ours.weights_[0, hidden:] == pytest.approx(theirs.weights_[0, M * D :], abs=1e-5)
    assert ours.unit_ == pytest.approx(theirs.unit_, rel=1e-5)
    assert 0 < random_lists < 40, "some lists must explore, and some must not"
    assert alike >= 35


class Rounded(Doubled):
    """The same network as another CPU computes it: what should be 0 at the start is not quite."""

    def forward(self, rows: Any) -> Any:
        return super().forward(rows) + 1e-15 * torch.sin(1e3 * rows.sum(-1))


def test_a_start_that_is_zero_but_for_rounding_shows_the_same_lists() -> None:
    """Nothing is certain, so scores of ±1e-15 must not decide what exact zeros leave to chance."""
    own = alone(net=Rounded(D, M, network("two-layer", D, M, 0).start()).double())
    built_in, seen = alone(), set()
    for t, candidates in enumerate(lists(20)):
        assert 0.0 < np.abs(own.score(candidates)).max() < 1e-12
        one, other = (learner.rank(candidates, 4, np.random.default_rng(t)) for learner in (own, built_in))
        assert one.order.tolist() == other.order.tolist()
        chances = [learner.log_propensity(candidates, one.order) for learner in (own, built_in)]
        assert chances[0] == pytest.approx(chances[1])
        assert one.memo["shares"] == pytest.approx(other.memo["shares"])
        seen.add(tuple(one.order.tolist()))
    assert len(seen) > 15


def test_neural_pdgd_too() -> None:
    own, built_in = taught(NeuralPDGD(net=doubled(), width=M)), taught(NeuralPDGD(width=M))
    candidates = lists(21)[-1]
    assert np.abs(built_in.score(candidates)).max() > 0.01
    assert own.score(candidates) == pytest.approx(built_in.score(candidates), abs=1e-4)


def test_tangent_features_of_a_module_are_finite_differences() -> None:
    module = Small(D).double()
    made: Any = networks.network(module, D, M, 0)
    rows = np.random.default_rng(0).random((3, D)).astype(np.float32)
    start, frozen = made.start(), made.frozen()
    expected = np.empty((3, start.size))
    for q in range(start.size):
        up, down = start.copy(), start.copy()
        up[q] += 1e-6
        down[q] -= 1e-6
        high, low = (made.forward(theta, frozen, rows).scores for theta in (up, down))
        expected[:, q] = (high - low) / 2e-6
    assert made.forward(start, frozen, rows).tangents() == pytest.approx(expected / np.sqrt(M), abs=1e-7)
    pull = np.array([0.5, -1.0, 2.0])
    assert made.forward(start, frozen, rows, learn=True).gradient(pull) == pytest.approx(pull @ expected, abs=1e-6)


def test_three_layers_start_at_zero() -> None:
    made = networks.network("three-layer", 30, 20, 3)
    rows = np.random.default_rng(0).random((50, 30)).astype(np.float32)
    assert np.abs(made.forward(made.start(), made.frozen(), rows).scores).max() < 1e-5
    moved = made.start() + 0.01 * np.random.default_rng(1).normal(size=made.size)
    assert np.abs(made.forward(moved, made.frozen(), rows).scores).max() > 0.01


# -- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_brought_network_keeps_the_contract() -> None:
    """All rules of the contract; it has a name here, since parameters must survive JSON."""
    check_learner(lambda: OLRankNet(net="small", width=M, replay_size=50))


def test_save_load_go_on(tmp_path: Path) -> None:
    """Through a file, with optimizer, buffers and kept lists: bit for bit as one never stopped."""
    unbroken, stopped = taught(OLRankNet(net="small", width=M)), taught(OLRankNet(net="small", width=M))
    rankloop.save(stopped, tmp_path / "small.rankloop")
    resumed = rankloop.load(tmp_path / "small.rankloop")
    for learner in (unbroken, resumed):
        taught(learner, 10)
    assert codec.dumps(unbroken.state()) == codec.dumps(resumed.state())


def test_buffers_are_part_of_the_state() -> None:
    """A learner restored with a module of other batch statistics scores as the one that was saved."""
    module, other = Small(D), Small(D)
    with torch.no_grad():
        statistics: Any = module.body[1]
        statistics.running_mean += 3.0
    learner = taught(alone(net=module))
    restored = alone(net=other)
    restored.load(learner.state())
    candidates = lists(21)[-1]
    assert (restored.score(candidates) == learner.score(candidates)).all()
    assert (restored.score(candidates) != alone(net=other).score(candidates)).any()


def test_the_module_is_left_alone_and_can_be_had_back() -> None:
    module = Small(D).train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    learner, single = taught(OLRankNet(net=module, width=M)), taught(alone(net=module))
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    trained, candidates = single.module(), lists(21)[-1]
    rows = torch.tensor(candidates.features, dtype=torch.float32)
    assert trained(rows).detach().numpy() == pytest.approx(single.score(candidates), abs=1e-6)
    assert not torch.equal(trained.head.weight, module.head.weight)
    learner.model_.evidence = evidence(1.0)  # the module is the network: the linear scores come on top
    both = learner.model_.line.scores(candidates) + learner.module()(rows).detach().numpy()
    assert both == pytest.approx(learner.score(candidates), abs=1e-6)
    with pytest.raises(InvalidParameter, match="there is no module"):
        taught(OLRankNet(width=M)).module()


def test_the_seed_decides_the_start_and_nothing_else_moves() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1).item()
    torch.manual_seed(1)
    one, same, other = (alone(net=Small, seed=seed) for seed in (5, 5, 6))
    candidates = lists(1)[0]
    assert (one.score(candidates) == same.score(candidates)).all()
    assert (one.score(candidates) != other.score(candidates)).any()
    assert clone(one) == one
    assert torch.rand(1).item() == expected, "PyTorch's own random numbers were used up"


def test_a_trained_network_is_trusted_from_the_start() -> None:
    """A module that knows what is good puts it on top before anything is learned, where the gap is wide enough."""
    knows = torch.nn.Sequential(torch.nn.Linear(D, 1), torch.nn.Flatten(0))
    with torch.no_grad():
        linear: Any = knows[0]
        linear.weight[:] = torch.tensor([[50.0, 0.0, 0.0, 0.0, 0.0]])
    candidates = lists(1)[0]
    assert candidates.features is not None
    learner = alone(net=knows)
    shown = learner.rank(candidates, 3, np.random.default_rng(0))
    assert shown.order.tolist() == np.argsort(-candidates.features[:, 0])[:3].tolist()


# -- errors ----------------------------------------------------------------------------------------------------------


class Table(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(D, 1)

    def forward(self, rows: Any) -> Any:
        return self.layer(rows)


class Broken(Table):
    def forward(self, rows: Any) -> Any:
        return torch.log(self.layer(rows).squeeze(-1) - 1e3)


def test_what_is_not_a_network_is_named() -> None:
    candidates, rng = lists(1)[0], np.random.default_rng(0)
    with pytest.raises(UnknownName, match="no network is called 'resnet'"):
        OLRankNet(net="resnet")
    with pytest.raises(InvalidParameter, match=r"net is 7"):
        OLRankNet(net=7)
    with pytest.raises(InvalidParameter, match=r"Table gave scores of shape \(9, 1\) for 9 rows"):
        OLRankNet(net=Table()).rank(candidates, 3, rng)
    with pytest.raises(InvalidParameter, match="has no parameters"):
        OLRankNet(net=torch.nn.Flatten(0)).rank(candidates, 3, rng)
    with pytest.raises(InvalidParameter, match=r"is str"):
        OLRankNet(net=lambda features: f"{features}").rank(candidates, 3, rng)
    with pytest.raises(InvalidParameter, match="has one set of initial weights"):
        PerturbedEnsemble(net=Small(D))
    with pytest.raises(InvalidParameter, match="name is 'two-layer'"):
        networks.register("two-layer", Small)
    with pytest.raises(InvalidParameter, match="factory of network 'x' is 3"):
        networks.register("x", 3)  # type: ignore[arg-type]


def test_a_network_that_only_this_process_has_cannot_be_saved() -> None:
    with pytest.raises(CodecError, match=r"net is .*Small.*register"):
        rankloop.dumps(OLRankNet(net=Small))


def test_a_state_of_another_network_is_refused() -> None:
    learner = taught(OLRankNet(width=M))
    with pytest.raises(InvalidInput, match=r"this network has \(1, 72\) with 5 features"):
        OLRankNet(width=12).load(learner.state())


def test_scores_that_are_not_numbers_are_divergence() -> None:
    learner = alone(net=Broken())
    shown = learner.adopt(lists(1)[0], np.arange(4))
    with pytest.raises(Diverged, match="OLRankNetPaper diverged at event 1"):
        learner.learn(shown, Feedback.clicks([0, 1, 0, 0]), np.random.default_rng(0))
    assert learner.model_.weights_.size == 0


# -- without PyTorch -------------------------------------------------------------------------------------------------


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.slow
def test_without_pytorch_the_built_in_network_learns_and_others_name_the_extra() -> None:
    code = """
import sys
sys.modules["torch"] = None
import numpy as np, rankloop
from rankloop.cli import main
rng, shoes = np.random.default_rng(0), rankloop.Candidates("q", features=np.eye(3))
for name in ("olranknet", "ollambdarank", "neural-pdgd", "neural-dbgd", "lambdarank-labels"):
    learner = rankloop.make(name)
    learner.learn(learner.rank(shoes, 2, rng), rankloop.Feedback.clicks([1, 0]), rng)
    try:
        rankloop.make(name, net="three-layer")
    except rankloop.core.errors.MissingExtra as error:
        assert str(error).endswith(" needs PyTorch, which is not installed: pip install 'rankloop[neural]'"), error
    else:
        raise AssertionError(name)
for arguments in (["learners"], ["simulate", "olranknet?net=three-layer"]):
    try:
        main(arguments)
    except SystemExit as stop:
        print("exit", stop.code)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "ollambdarank" in done.stdout
    assert "exit 2" in done.stdout
    assert "pip install 'rankloop[neural]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_pytorch_is_imported_only_when_used() -> None:
    code = (
        "import sys, rankloop, rankloop.learners.models.networks, rankloop.service.api.app, rankloop.cli.service\n"
        "for name in rankloop.LEARNERS: rankloop.make(name)\n"
        "rankloop.make('olranknet', net='three-layer')\n"
        "assert 'torch' not in sys.modules"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_name_can_come_from_a_module_that_the_environment_lists() -> None:
    """What a command line, a worker process and the service need: nobody imports your code for them."""
    code = "import rankloop; rankloop.make('olranknet', net='small')"
    root = str(Path(__file__).parents[2])
    assert "no network is called 'small'" in run(code).stderr
    done = run(code, RANKLOOP_NETWORKS="tests.learners.own_networks", PYTHONPATH=f"{root}:{root}/src")
    assert done.returncode == 0, done.stderr
