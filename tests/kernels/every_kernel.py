"""One fixed round through every kernel; as a program it prints the results, to compare with and without JIT."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType

import numpy as np

from rankloop.kernels import (
    batches,
    certainty,
    click_fits,
    click_models,
    dueling,
    feedback,
    forgetting,
    grading,
    interleaving,
    long_lists,
    metrics,
    offline,
    pairwise,
    plackett_luce,
    preferences,
    ranking,
    sequential,
)
from tests.kernels import every_bandit, grade_kernels, loop_kernels, network_kernels, read_kernels
from tests.kernels.inputs import NOTHING, frozen, pair_rows, positions, spd

Results = dict[str, list[float] | list[int] | list[bool]]


def results() -> Results:
    """Each kernel's output, flat; what it changes in place counts as output."""
    rng = np.random.default_rng(12)
    n, d, k = 12, 6, 5
    features, theta = frozen(rng.random((n, d)).round(1)), frozen(2 * rng.normal(size=d))
    uniforms, keys, matrix = frozen(rng.random(n)), frozen(rng.random(k)), spd(d, rng)
    found: Results = {}

    scores = ranking.linear_scores(features, theta)
    order = ranking.top_k(frozen(scores), uniforms, k)
    wanted = positions(ranking.top_k(frozen(scores), uniforms, n))
    found |= {"linear_scores": scores.tolist(), "top_k": order.tolist()}
    for displacement in (0, 2, n):
        found[f"bounded_order {displacement}"] = ranking.bounded_order(wanted, displacement, k).tolist()

    kinds, pinned = positions(np.arange(2 * n).reshape(2, n) % 3), positions(np.eye(2, 3))
    constrained = ranking.constrained_order(
        wanted, kinds, positions([1, 2]), positions([4, 3]), pinned, positions(range(k))
    )
    found["constrained_order"] = [*constrained[0].tolist(), *constrained[1].tolist()]
    for epsilon in (0.0, 0.3):
        chance = ranking.epsilon_greedy_log_probability(frozen(scores), positions(order), epsilon)
        found[f"epsilon_greedy_log_probability {epsilon}"] = [chance]

    shown, shown_scores = frozen(features[order]), frozen(scores[order])
    rest = plackett_luce.rest_weight(frozen(scores), positions(order))
    tables = plackett_luce.swap_tables(frozen(shown_scores[None]), frozen([rest]))
    places, weights = positions(rng.permutation(n)), frozen([*theta, 1.5])
    pairs, odd = pair_rows([(0, 3), (4, 1), (2, 3)]), frozen(np.arange(shown_scores.size) % 2.0)
    found |= {
        "sample": plackett_luce.sample(frozen(scores), uniforms, k).tolist(),
        "rest_weight": [rest],
        "rest_weight of none": [float(plackett_luce.rest_weight(frozen(scores[:2]), positions([1, 0])) == -np.inf)],
        "log_probability": [plackett_luce.log_probability(shown_scores, rest)],
        "swap_shares": plackett_luce.swap_shares(shown_scores, rest, pairs).tolist(),
        "swap_tables": tables[1].ravel().tolist(),
        "swap_shares, huge gaps": plackett_luce.swap_shares(frozen([1e3, -1e3, 0.0, 0.0, 1e3]), rest, pairs).tolist(),
        "pdgd_pulls": plackett_luce.pdgd_pulls(shown_scores, rest, odd, pairs).tolist(),
        "pdgd_gradient": plackett_luce.pdgd_gradient(shown, shown_scores, rest, odd, True, -1).tolist(),
        "pdgd_step": plackett_luce.pdgd_step(theta, theta, 0.5).tolist(),
        "draw": plackett_luce.draw(features, theta, uniforms, k)[0].tolist(),
        "draw_from_base": plackett_luce.draw_from_base(features, weights, uniforms, k)[0].tolist(),
        "scores_with_places": ranking.scores_with_places(features, places, weights).tolist(),
        "pdgd_gradient_from_base": plackett_luce.pdgd_gradient_from_base(
            shown, places[: len(shown)], shown_scores, rest, odd, True, 4
        ).tolist(),
    }

    found |= {
        "centred_rows": certainty.centred_rows(features).ravel().tolist(),
        "row_norms": certainty.row_norms(features, features).tolist(),
    }
    whole = ranking.top_k(frozen(scores), uniforms, n)
    gram = frozen(features @ np.linalg.inv(matrix) @ features.T)
    for logit in (False, True):
        certain = frozen(certainty.certain_pairs(frozen(scores), gram, NOTHING, 0.3, logit), np.bool_)
        ends = certainty.block_ends(certain, positions(whole))
        found |= {
            f"certain_pairs {logit}": certain.ravel().tolist(),
            f"block_ends {logit}": ends.tolist(),
            f"shuffle_blocks {logit}": certainty.shuffle_blocks(positions(whole), positions(ends), keys, k).tolist(),
            f"random_topological {logit}": certainty.random_topological(certain, keys, k).tolist(),
            f"log probabilities {logit}": [
                certainty.topological_log_probability(certain, positions(order)),
                certainty.block_log_probability(positions(whole), positions(ends), positions(whole[:k])),
            ],
        }
        white = frozen(features @ np.linalg.cholesky(np.linalg.inv(matrix)))
        waiting = np.zeros(n, np.int64)
        gaps = (1.0 if logit else 0.25) * np.subtract.outer(scores[whole], scores[whole])
        spans = 0.3**2 * ((white[whole, None] - white[None, whole]) ** 2).sum(2)
        long_lists.count_predecessors(
            white,
            frozen(scores),
            positions(whole),
            positions(whole),
            positions(np.arange(n * n)),
            (gaps**2 - spans).astype(np.float32).ravel(),
            1.0,
            1e-5,
            0.3,
            logit,
            k,
            waiting,
        )
        drawn, above = long_lists.long_random_topological(white, frozen(scores), waiting, 0.3, logit, keys, k)
        found |= {
            f"count_predecessors {logit}": waiting.tolist(),
            f"long_random_topological {logit}": [*drawn.tolist(), *above.ravel().tolist()],
            f"successors {logit}": long_lists.successors(white, frozen(scores), waiting, 0.3, logit, drawn)
            .ravel()
            .tolist(),
            f"long_block_ends {logit}": long_lists.long_block_ends(
                white, frozen(scores), positions(whole), 0.3, logit, k
            ).tolist(),
            f"drawn_log_probability {logit}": [certainty.drawn_log_probability(waiting, above, drawn)],
            f"swap_shares of certainty {logit}": certainty.swap_shares(waiting, above, drawn).ravel().tolist(),
        }

    clicks = frozen([0.0, 1.0, 0.0, 1.0, 0.0])
    found |= {
        "filled": feedback.filled(clicks, k + 2, 1.0)[0].tolist(),
        "filled_beside": feedback.filled_beside(clicks, features, 1.0)[0].tolist(),
        "all_finite": [bool(feedback.all_finite(rows)) for rows in (features, frozen([[0.0, np.nan], [1.0, 2.0]]))],
    }
    for rule in (preferences.ADJACENT, preferences.MATCHED, preferences.ALL):
        found[f"click_pairs {rule}"] = preferences.click_pairs(clicks, True, -1, rule, keys).ravel().tolist()
    rows, weights = frozen(rng.normal(size=(9, d))), frozen(rng.random(9))
    target = np.zeros(d)
    pairwise.add_scaled(target, weights, rows)
    rank_one, one_inverse, one_theta = np.linalg.inv(matrix), np.linalg.inv(matrix), np.array(theta)
    gains = [
        pairwise.rank_one_update(rank_one, frozen(rows[0]), 0.2),
        pairwise.onepass(one_theta, one_inverse, shown, pairs, frozen(weights[:3])),
    ]
    subtracted = np.array(matrix)
    pairwise.subtract_products(subtracted, rows, rows, positions([0, 2, 3, 5, 8]))
    gathered, push = np.tril(matrix), np.zeros(d)
    batches.gather(gathered, push, theta, shown, pairs, frozen(weights[:3]), 0.9, 2.0)
    products = np.tril(matrix)
    batches.add_half_products(products, rows, rows, -0.1)
    found |= {
        "gather": [*gathered.ravel().tolist(), *push.tolist()],
        "add_half_products": products.ravel().tolist(),
        "half_inverse": batches.half_inverse(frozen(np.tril(matrix))).ravel().tolist(),
        "stepped": batches.stepped(theta, frozen(matrix), frozen(push)).tolist(),
        "bend": [batches.bend(margin) for margin in (-3.0, 1e-4, 0.5)],
    }
    faded = np.linalg.inv(matrix)
    found |= {
        "fade": [forgetting.fade(faded, 0.9, 2.0, 3), *faded.ravel().tolist()],
        "coordinates_an_event": [forgetting.coordinates_an_event(d, keep) for keep in (0.2, 0.9, 1.0)],
        "foretold": forgetting.foretold(shown, pairs, frozen(weights[:3]), theta, rows).tolist(),
    }
    fitted = np.array(theta)
    pairwise.refit(fitted, np.eye(d), rows, weights, 0.5, 1e-9)
    gradient, curvature = pairwise.logistic_gradient(theta, rows, weights, 0.5)
    found |= {
        "examined_count": [preferences.examined_count(clicks, one, seen) for one in (False, True) for seen in (-1, 5)],
        "differences": preferences.differences(clicks, pairs).tolist(),
        "sigmoid": [pairwise.sigmoid(-1e3), pairwise.sigmoid(0.3), pairwise.sigmoid(1e3)],
        "rows_times": pairwise.rows_times(rows, frozen(matrix)).ravel().tolist(),
        "dot": [pairwise.dot(theta, frozen(rows[0]))],
        "add_scaled": target.tolist(),
        "log det gains": gains,
        "rank_one_update": rank_one.ravel().tolist(),
        "onepass": [*one_theta.tolist(), *one_inverse.ravel().tolist()],
        "logistic_gradient": [*gradient.tolist(), *curvature.tolist()],
        "spd_inverse": pairwise.spd_inverse(frozen(matrix)).ravel().tolist(),
        "hessian_inverse": pairwise.hessian_inverse(rows, weights, 0.5).ravel().tolist(),
        "some_rows_times": pairwise.some_rows_times(rows, frozen(matrix), positions([1, 5])).ravel().tolist(),
        "named": pairwise.named(pairs, 9).tolist(),
        "subtract_products": subtracted.ravel().tolist(),
        "ascending": preferences.ascending(clicks, positions([4, 1, 0, 3]), -1.0).tolist(),
        "that_count": preferences.that_count(pairs, frozen([0.5, 0.0, 1.0]), 0.3)[1].tolist(),
        "debiased": plackett_luce.debiased(
            frozen(scores[:k]), 0.5, 0.3, frozen(np.eye(k)), clicks, pairs, frozen(weights[:3])
        ).tolist(),
        "longest_pair": [pairwise.longest_pair(shown, pairs)],
        "refit": fitted.tolist(),
    }

    grades = frozen(rng.integers(0, 5, size=n))
    offsets = positions([0, 0, 1, 7, n])
    found |= {
        "dcg": [metrics.dcg(grades, k), metrics.dcg(grades, 2 * n), metrics.ideal_dcg(grades, k)],
        "shares": [metrics.average_precision(grades), metrics.precision(grades, k), metrics.auc(grades)],
        "misordered_pairs": [metrics.misordered_pairs(grades)],
        "ragged_ideal_dcg": metrics.ragged_ideal_dcg(grades, offsets, k).tolist(),
        "ragged_dcg": metrics.ragged_dcg(frozen(scores), uniforms, grades, offsets, k).tolist(),
    }

    best = positions(grading.ragged_best_first(positions(grades), offsets))
    found |= {
        "ragged_best_first": best.tolist(),
        "utilities": grading.utilities(features, theta).tolist(),
        "deal_grades": grading.deal_grades(features, theta, positions(range(n, 0, -1))).tolist(),
        "ragged_deal_grades": grading.ragged_deal_grades(features, theta, best, offsets).tolist(),
    }

    rankings = positions(interleaving.rankings(frozen(rng.normal(size=(4, n)).round(1)), uniforms))
    coins = frozen(rng.random((2, k)))
    mixed, credit = interleaving.probabilistic(rankings, coins, k, 3.0)
    drafted, team = interleaving.team_draft(rankings, keys, k)
    paired, ranks, choices = interleaving.pairwise_preference(rankings, keys, k)
    found |= {
        "rankings": rankings.ravel().tolist(),
        "odd_one": [interleaving.odd_one(rankings), interleaving.odd_one(positions([[0, 1], [1, 1]]))],
        "ranks_of": interleaving.ranks_of(rankings).ravel().tolist(),
        "soft_ranks": np.array(interleaving.soft_ranks(n, 1.5)).ravel().tolist(),
        "team_draft": [*drafted.tolist(), *team.tolist()],
        "probabilistic": mixed.tolist(),
        "probabilistic, credit": credit.ravel().tolist(),
        "credit_of": interleaving.credit_of(rankings, positions(drafted), 3.0).ravel().tolist(),
        "expected_clicks": interleaving.expected_clicks(frozen(credit), clicks).tolist(),
        "win_and_loss": interleaving.win_and_loss(frozen(credit), clicks, 1).ravel().tolist(),
        "pairwise_preference": [*paired.tolist(), *ranks.ravel().tolist(), *choices.tolist()],
        "pair_credit": interleaving.pair_credit(positions(ranks), positions(choices), clicks).tolist(),
    }
    for displacement in (1, n):
        near = [positions(ranking.bounded_order(positions(row), displacement, k)) for row in rankings[:2]]
        order, owner = interleaving.two_team_draft(near[0], near[1], keys, n, displacement, k)
        found[f"two_team_draft {displacement}"] = [*order.tolist(), *owner.tolist()]

    counts, sums, rich, crossed = np.zeros(9), np.zeros(3), np.zeros((2, 2)), np.zeros(2)
    bets, values = frozen([0.9, 0.3]), frozen([1.0, 0.5, -1.0, 1.0, 1.0, 0.9, 1.0, 1.0])
    followed = sequential.follow(counts, sums, rich, crossed, values, bets, 0.1, 0.7)
    found |= {
        "follow": [float(followed), *counts.tolist(), *sums.tolist(), *rich.ravel().tolist(), *crossed.tolist()],
        "log_wealth": [sequential.log_wealth(frozen(counts), bets, m, s) for m in (-0.5, 0.1) for s in (1.0, -1.0)],
        "log_mean": [sequential.log_mean(frozen([-1e3, 3.0, 2.0]))],
        "last_refused": [sequential.last_refused(frozen(counts), bets, 0.5, 1.5, side) for side in (1.0, -1.0)],
        "least_sum": [sequential.least_sum(50.0, 0.6, bets, 3.0)],
    }

    several = frozen(rng.normal(size=(4, n)))
    coins, directions = frozen(rng.random((2, k))), frozen(dueling.unit_rows(frozen(rng.normal(size=(3, d)))))
    soft = [frozen(part) for part in interleaving.soft_ranks(n, 3.0)]
    mixed, credit = dueling.interleave(several, uniforms, coins, *soft)
    ball = np.array([[3.0, 4.0], [0.1, 0.2]])
    dueling.within_ball(ball, 1.0)
    experts, shares = frozen(rng.normal(size=(3, d))), frozen([0.5, 0.3, 0.2])
    middle = frozen(dueling.mixture(shares, experts))
    logs = frozen(np.log(shares))
    tracked = dueling.track(logs, experts, middle, frozen(directions[0]), frozen([0.1, 0.5, 2.0]), 0.2, 2.0, 1.5)
    mean, winners = dueling.mean_winner(directions, frozen([0.0, 0.5, 0.1, 0.6]), frozen([0.0, 0.2, 0.4, 0.1]))
    found |= {
        "dueling interleave": mixed.tolist(),
        "dueling credit": credit.ravel().tolist(),
        "unit_rows": directions.ravel().tolist(),
        "projected": dueling.projected(directions[0], shown).tolist(),
        "null_directions": dueling.null_directions(directions, frozen(shown[:2])).ravel().tolist(),
        "within_ball": ball.ravel().tolist(),
        "explorers": dueling.explorers(theta, directions, 0.5).ravel().tolist(),
        "rankers_scores": ranking.rankers_scores(directions, features).ravel().tolist(),
        "explorer_scores": dueling.explorer_scores(theta, directions, 0.5, features).ravel().tolist(),
        "duel": dueling.duel(features, theta, directions, 0.5, uniforms, coins, *soft)[0].tolist(),
        "winning_direction": dueling.winning_direction(directions, credit, frozen(np.ones(k))).tolist(),
        "stepped": dueling.stepped(theta, directions[0], 0.5, 1.0).tolist(),
        "length": [dueling.length(theta)],
        "track": np.concatenate([part.ravel() for part in tracked]).tolist(),
        "hedge": dueling.hedge(logs, experts, middle, frozen(directions[0]), 0.2, 2.0).tolist(),
        "mean_winner": [*mean.tolist(), float(winners)],
        "right_pairs": dueling.right_pairs(shown, directions).tolist(),
        "kendall_regret": [offline.kendall_regret(frozen(np.round(theta)), np.arange(d - 1))],
    }
    found |= _click_models(rng)
    return (
        found
        | every_bandit.results()
        | grade_kernels.results()
        | network_kernels.results(features, frozen(scores), uniforms)
        | loop_kernels.results(features)
        | read_kernels.results()
    )


def _click_models(rng: np.random.Generator) -> Results:
    """All four ways to read a list, on pages of 1 to 5 documents."""
    lengths = positions([5, 1, 4, 5, 3, 2])
    pages, inside = np.array([rng.permutation(8)[:5] for _ in lengths]), np.arange(5) < lengths[:, None]
    shown = positions(np.where(inside, pages, -1))
    clicks = frozen(inside & (rng.random(shown.shape) < 0.4), np.uint8)
    attraction, after, one = frozen(rng.random(8)), frozen(rng.random(8)), frozen([1.0])
    ranks, table = frozen(rng.random((5, 1))), frozen(rng.random((5, 5)))
    found: Results = {}
    users = (
        (click_models.CASCADE, frozen(np.zeros(8)), one, 1.0, frozen([[1.0]])),
        (click_models.CHAIN, after, frozen(ranks[:, 0]), 0.9, frozen([[1.0]])),
        (click_models.POSITION, one, one, 1.0, ranks),
        (click_models.BROWSING, one, one, 1.0, table),
    )
    for kind, *rest in users:
        user = click_models.ClickChances(kind, attraction, *rest)  # type: ignore[arg-type]
        coins, made = frozen(rng.random((len(lengths), 2, 5))), np.zeros(shown.shape)
        click_fits.react_pages(user, shown, lengths, coins, made)
        examined, clicked, given, work = np.zeros(5), np.zeros(5), np.zeros(5), np.zeros((3, 6))
        click_models.chances(user, positions(shown[0]), examined, clicked, work[0])
        click_models.conditional(user, positions(shown[0]), clicks[0], given)
        total = click_models.expected_clicks(user, positions(shown[0]), 3, work)
        scores = click_fits.score_pages(user, shown, lengths, clicks, 1e-6)
        found |= {
            f"react_pages {kind}": made.ravel().tolist(),
            f"chances {kind}": [*examined.tolist(), *clicked.tolist(), *given.tolist(), total],
            f"score_pages {kind}": [*scores[0].tolist(), *scores[1].tolist(), *scores[2].tolist(), scores[3]],
            f"impossible {kind}": [int(scores[4])],
        }
    for until in (0, 1, 2):
        counts = click_fits.shown_and_clicked(shown, lengths, clicks, until, 8)
        found[f"shown_and_clicked {until}"] = np.concatenate(counts).tolist()
    for by_rank in (False, True):
        found[f"last_clicks {by_rank}"] = np.concatenate(
            click_fits.last_clicks(shown, lengths, clicks, by_rank, 8)
        ).tolist()
        size = 5 if by_rank else 8
        out = (np.zeros(8), np.zeros(size), np.zeros(size), np.zeros((3, 2)))
        stay = frozen([0.3, 0.8, 0.9])
        total = click_fits.chain_counts(attraction, frozen(after[:size]), by_rank, stay, shown, lengths, clicks, *out)
        found[f"chain_counts {by_rank}"] = [total, *np.concatenate([part.ravel() for part in out]).tolist()]
    for examination in (ranks, table):
        columns = examination.shape[1]
        attracted, seen = np.zeros(8), np.zeros_like(examination)
        total = click_fits.browsing_counts(attraction, examination, shown, lengths, clicks, attracted, seen)
        shows = click_fits.browsing_shows(lengths, clicks, columns)
        found[f"browsing_counts {columns}"] = [total, *attracted.tolist(), *seen.ravel().tolist()]
        found[f"browsing_shows {columns}"] = shows.ravel().tolist()
    return found


def kernels_run() -> tuple[Results, list[str]]:
    """The results, and the functions of `rankloop.kernels` that ran for them; uncompiled ones only can be seen."""
    ran: set[str] = set()

    def seen(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.parent.name == "kernels":
            ran.add(f"{path.stem}.{frame.f_code.co_name}")

    sys.setprofile(seen)
    try:
        found = results()
    finally:
        sys.setprofile(None)
    return found, sorted(ran)


if __name__ == "__main__":
    # numpy's numbers, which uncompiled kernels return, are not JSON's.
    json.dump(kernels_run(), sys.stdout, default=lambda number: number.item())
