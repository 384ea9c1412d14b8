"""A message's text and entities as lines a template can show; offsets are UTF-16 units. Pure."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# As near to what Telegram finds as a page needs: more is marked here than there, never less.
FOUND = re.compile(
    r"(?P<url>\w+://[^\s<>\"']*[^\s<>\"'.,;:!?)\]]|(?<![\w@.])(?:[\w-]+\.)+[^\W\d_]{2,}(?![\w@])(?:/[^\s<>\"']*)?)"
    r"|(?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)|(?<![\w@])(?P<mention>@\w{3,})|(?<![\w/<>])(?P<bot_command>/\w+)"
    r"|(?<!\w)(?P<hashtag>#\w+)|(?<!\w)(?P<cashtag>\$[A-Z]{1,8}\b)|"
    r"(?P<phone_number>(?<![0-9-])(?![0-9]{4}-[0-9]{2}-)\+?[0-9][0-9 ()-]{8,}[0-9])"
)
# Telegram heeds no more of them.
MOST = 100
BLOCKS = {"pre": "pre", "blockquote": "quote", "expandable_blockquote": "quote"}


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of text with one look; `href` is empty unless it is a web address."""

    text: str
    kinds: str
    href: str


@dataclass(frozen=True, slots=True)
class Block:
    """Runs that stand together: quoted (`quote`), in a block of their own (`pre`), or as they are."""

    kind: str
    runs: tuple[Run, ...]


def blocks(text: str, entities: Sequence[Mapping[str, object]]) -> tuple[Block, ...]:
    """Cut the text into blocks where its look changes.

    Only the line end at a block's edge is left out; the edge stands for it.
    """
    made: list[Block] = []
    entities = entities[:MOST]
    for run in _runs(text, [*entities, *_addresses(text, entities)]):
        kind = next((BLOCKS[one] for one in run.kinds.split() if one in BLOCKS), "")
        if made and made[-1].kind == kind:
            made[-1] = Block(kind, (*made[-1].runs, run))
        else:
            made.append(Block(kind, (run,)))
    for before, after in itertools.pairwise(range(len(made))):
        made[before] = _without_edge(made[before], -1)
        made[after] = _without_edge(made[after], 0)
    return tuple(made)


def _without_edge(block: Block, at: int) -> Block:
    run = block.runs[at]
    text = run.text.removesuffix("\n") if at else run.text.removeprefix("\n")
    runs = list(block.runs)
    runs[at] = Run(text, run.kinds, run.href)
    return Block(block.kind, tuple(runs))


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
        url = entity.get("url") if entity["type"] != "url" else part if "://" in part else f"http://{part}"
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            return url
    return ""


def _addresses(text: str, entities: Sequence[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    """Yield what Telegram makes a link of by itself, though nobody marked it; nothing inside code or a link."""
    taken = [_place(e) for e in entities if e["type"] in ("code", "pre", "text_link", "url")]
    for hit in FOUND.finditer(text):
        start = len(text[: hit.start()].encode("utf-16-le", "surrogatepass")) // 2
        length = len(hit.group().encode("utf-16-le", "surrogatepass")) // 2
        if not any(first < start + length and start < first + size for first, size in taken):
            yield {"type": hit.lastgroup, "offset": start, "length": length}
