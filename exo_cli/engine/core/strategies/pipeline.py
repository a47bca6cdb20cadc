"""Pipeline: consecutive layers, in order of rank; memory decides how many."""

from collections.abc import Sequence

from exo_cli.engine.core.cards import ModelCard


def fault(card: ModelCard, n_nodes: int) -> str | None:
    """Why the card cannot be cut into `n_nodes` runs of layers, or None."""
    if n_nodes > card.n_layers:
        return f"{card.model_id} has {card.n_layers} layers, too few for {n_nodes} nodes"
    return None


def split(n_layers: int, weights: Sequence[int], most: Sequence[int]) -> list[range] | None:
    """Half-open layer ranges, in proportion to `weights`, at least one and at most `most[i]` for each.

    Largest remainder (Hamilton), and what rounding leaves over goes only where there is slack. None when it cannot be.
    """
    n, total = len(weights), sum(weights)
    if n == 0 or n > n_layers or total <= 0 or min(most) < 1 or sum(most) < n_layers:
        return None
    shares = [n_layers * weight / total for weight in weights]
    counts = [min(limit, max(1, int(share))) for share, limit in zip(shares, most, strict=True)]
    while sum(counts) < n_layers:
        slack = [rank for rank in range(n) if counts[rank] < most[rank]]
        counts[max(slack, key=lambda rank: (shares[rank] - counts[rank], -rank))] += 1
    while sum(counts) > n_layers:
        over = [rank for rank in range(n) if counts[rank] > 1]
        counts[max(over, key=lambda rank: (counts[rank] - shares[rank], -rank))] -= 1
    ends = [sum(counts[: rank + 1]) for rank in range(n)]
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]
