"""A message's text and entities as lines a template can show; offsets are UTF-16 units (pure)."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ADDRESS = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)\]]")
QUOTES = frozenset({"blockquote", "expandable_blockquote"})


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of text of one look; `href` is empty unless it is a web address."""

    text: str
    kinds: str
    href: str


@dataclass(frozen=True, slots=True)
class Block:
    """Runs that stand together, quoted or not."""

    quoted: bool
    runs: tuple[Run, ...]


def blocks(text: str, entities: Sequence[Mapping[str, object]]) -> tuple[Block, ...]:
    """The text cut where its look changes; only the line end at a quote's edge is left out, the edge stands for it."""
    made: list[Block] = []
    for run in _runs(text, [*entities, *_addresses(text, entities)]):
        quoted = not QUOTES.isdisjoint(run.kinds.split())
        if made and made[-1].quoted == quoted:
            made[-1] = Block(quoted, (*made[-1].runs, run))
        else:
            made.append(Block(quoted, (run,)))
    for before, after in itertools.pairwise(range(len(made))):
        made[before] = _without_edge(made[before], -1)
        made[after] = _without_edge(made[after], 0)
    return tuple(made)


def _without_edge(block: Block, at: int) -> Block:
    run = block.runs[at]
    text = run.text.removesuffix("\n") if at else run.text.removeprefix("\n")
    runs = list(block.runs)
    runs[at] = Run(text, run.kinds, run.href)
    return Block(block.quoted, tuple(runs))


def _runs(text: str, entities: Sequence[Mapping[str, object]]) -> Iterator[Run]:
    raw = text.encode("utf-16-le", "surrogatepass")
    spans = [(start, start + length, entity) for entity in entities for start, length in [_place(entity)]]
    cuts = sorted({0, len(raw) // 2, *(at for span in spans for at in span[:2] if at <= len(raw) // 2)})
    for start, end in itertools.pairwise(cuts):
        over = [entity for first, last, entity in spans if first <= start and end <= last]
        part = raw[2 * start : 2 * end].decode("utf-16-le", "replace")
        yield Run(part, " ".join(sorted({str(entity["type"]) for entity in over})), _href(part, over))


def _place(entity: Mapping[str, object]) -> tuple[int, int]:
    offset, length = entity.get("offset"), entity.get("length")
    return (offset, length) if isinstance(offset, int) and isinstance(length, int) else (0, 0)


def _href(part: str, over: Sequence[Mapping[str, object]]) -> str:
    for entity in over:
        url = part if entity["type"] == "url" else entity.get("url")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            return url
    return ""


def _addresses(text: str, entities: Sequence[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """Web addresses nobody marked, as Telegram marks them by itself; none inside code or a link."""
    taken = [_place(e) for e in entities if e["type"] in ("code", "pre", "text_link", "url")]
    for hit in ADDRESS.finditer(text):
        start = len(text[: hit.start()].encode("utf-16-le", "surrogatepass")) // 2
        length = len(hit.group().encode("utf-16-le", "surrogatepass")) // 2
        if not any(first < start + length and start < first + size for first, size in taken):
            yield {"type": "url", "offset": start, "length": length}
