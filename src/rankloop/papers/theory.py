"""What the paper on top-k feedback proves, as tables: losses and feedback of three items, and what can be learned."""

from __future__ import annotations

from collections.abc import Sequence

from rankloop.lab.plots.report import Table
from rankloop.papers.observability import Game

# the games, and what the paper says of them
GAMES: tuple[tuple[Game, str], ...] = (
    (Game("sumloss", 3), "T^(2/3): Theorems 1 and 4"),
    (Game("sumloss", 4), "T^(2/3) at most: Theorem 1"),
    (Game("pairwise", 3), "T^(2/3): same regret as SumLoss, equation 2"),
    (Game("dcg", 3), "T^(2/3): section 2.7, appendix A"),
    (Game("dcg", 3, n=2), "T^(2/3): section 2.7"),
    (Game("precision", 3, cut=2), "T^(2/3) at most; local observability left open"),
    (Game("precision", 4, cut=2), "T^(2/3) at most; local observability left open"),
    (Game("ndcg", 3), "T: Lemma 12, Theorem 13"),
    (Game("ap", 3), "T: Lemma 12, Theorem 13"),
    (Game("auc", 3), "globally observable: appendix A"),
    (Game("auc", 4), "T: Lemma 12, Theorem 13"),
    (Game("sumloss", 3, k=2), "open question, section 5"),
    (Game("sumloss", 4, k=2), "open question, section 5"),
    (Game("ndcg", 3, k=2), "open question, section 5"),
    (Game("ndcg", 4, k=2), "open question, section 5"),
    (Game("ndcg", 4, k=3), "open question, section 5"),
    (Game("ap", 3, k=2), "open question, section 5"),
    (Game("ap", 4, k=2), "open question, section 5"),
    (Game("ap", 4, k=3), "open question, section 5"),
    (Game("auc", 4, k=2), "open question, section 5"),
    (Game("auc", 4, k=3), "open question, section 5"),
)


def tables() -> list[Table]:
    """Tables 1 and 2 of the paper, and the games."""
    game = Game("sumloss", 3)
    columns = ("ranks of items 1 2 3", *("".join(map(str, grades)) for grades in game.vectors))
    losses = [[str(value) for value in row] for row in game.losses]
    seen = [[str(grades[0]) for grades in row] for row in game.feedback]
    return [
        Table("Table 1: what each ranking loses under each relevance vector (SumLoss)", columns, _rows(game, losses)),
        Table("Table 2: what it reveals, the grade of its first item", columns, _rows(game, seen)),
        learnable(),
    ]


def learnable() -> Table:
    """Each game: whether losses can be told from feedback, everywhere and near the best, and the regret that allows."""
    rows = []
    for game, said in GAMES:
        measure = f"precision@{game.cut}" if game.measure == "precision" else game.measure
        locally = _yes(game.locally_observable) if game.globally_observable else ""
        rows.append(
            (
                measure,
                str(game.m),
                str(game.k),
                str(game.n + 1),
                _yes(game.globally_observable),
                locally,
                game.regret,
                said,
            )
        )
    caption = "What can be learned from the grades of the first k of m items: computed, beside what the paper says"
    columns = ("measure", "m", "k", "grades", "global", "local", "best regret", "the paper")
    return Table(caption, columns, rows, words=len(columns))


def _rows(game: Game, cells: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return [("".join(map(str, ranks)), *row) for ranks, row in zip(game.rankings, cells, strict=True)]


def _yes(value: bool) -> str:
    return "yes" if value else "no"
