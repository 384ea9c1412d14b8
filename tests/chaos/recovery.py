"""How long after a blow the first delivery came, in tenths of a second, so that campaigns add up. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence


def waits(blows: Sequence[float], sent: Sequence[float]) -> Counter[float]:
    """How often so many seconds passed from a blow to the next receipt; blows after the last receipt are left out."""
    found = (sent[place] - blow for blow in blows if (place := bisect_right(sent, blow)) < len(sent))
    return Counter(round(wait, 1) for wait in found)


def undisturbed(blows: Sequence[float], sent: Sequence[float]) -> Counter[float]:
    """The same of those blows only that no other one followed before that receipt."""
    ordered = sorted(blows)
    alone = [
        blow
        for blow, following in zip(ordered, [*ordered[1:], float("inf")], strict=False)
        if (place := bisect_right(sent, blow)) < len(sent) and sent[place] < following
    ]
    return waits(alone, sent)


def recoveries(
    killed: Sequence[float], restarted: Sequence[float], sent: Sequence[float], until: float
) -> dict[str, object]:
    """The figures of all blows before `until`, after which one death follows the other on purpose."""
    sent = [at for at in sent if at < until]
    found = {
        "after_kill": waits([at for at in killed if at < until], sent),
        "after_restart": waits(restarted, sent),
        "undisturbed": undisturbed([at for at in (*killed, *restarted) if at < until], sent),
    }
    return {f"recovery_{blow}": recovery(counted) for blow, counted in found.items()} | {
        f"waits_{blow}": in_order(counted) for blow, counted in found.items()
    }


def recovery(counted: Mapping[float, int]) -> dict[str, float]:
    """Median, 99th percentile and the longest; empty where nothing was counted."""
    total = sum(counted.values())
    if not total:
        return {}
    return {
        "median": _nth(counted, total // 2),
        "p99": _nth(counted, min(total - 1, int(total * 0.99))),
        "most": max(counted),
    }


def _nth(counted: Mapping[float, int], place: int) -> float:
    """The value at this place, were all of them written down in order."""
    for value in sorted(counted):
        place -= counted[value]
        if place < 0:
            return value
    raise ValueError("there are not so many")


def in_order(counted: Mapping[float, int]) -> dict[str, int]:
    """As it is written down."""
    return {str(value): counted[value] for value in sorted(counted)}
