"""WCAG 2.2, success criterion 1.4.3: every colour of words stands out from what it is written on, light and dark."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEAST = 4.5
BLOCK = re.compile(r"@media ([^{]*)\{((?:[^{}]|\{[^{}]*\})*)\}")
CONSOLE = ROOT / "butlers/console/static/console.css"
SANDBOX = ROOT / "messenger/sandbox/static/sandbox.css"
# What is written on what, as the variables of each style sheet.
WRITTEN: Mapping[Path, tuple[tuple[str, str], ...]] = {
    CONSOLE: (
        *((words, ground) for words in ("ink", "soft", "accent") for ground in ("ground", "paper", "well")),
        *(("accent", "accent-wash"), ("accent-ink", "accent"), ("brass", "brass-wash"), ("brass", "paper")),
        *(("bad", "bad-wash"), ("bad", "paper"), ("paper", "ink")),
    ),
    SANDBOX: (
        *((words, ground) for words in ("ink", "soft") for ground in ("ground", "side", "paper", "pick")),
        *(("ink", "mine"), ("mine-soft", "mine"), ("accent", "mine"), ("accent", "paper"), ("accent", "side")),
        *(("accent-ink", "accent"), ("ink", "code"), ("key-ink", "key")),
        *((f"ink{n}", "paper") for n in range(8)),
        *((f"ink{n}", "mine") for n in range(8)),
        *(("white", f"hue{n}") for n in range(8)),
    ),
}


def colours(sheet: Path, scheme: str) -> Mapping[str, str]:
    """The colours of a style sheet by name, as they are in a light or a dark room."""
    text = sheet.read_text(encoding="utf-8")
    dark = "".join(rules for asked, rules in BLOCK.findall(text) if "prefers-color-scheme: dark" in asked)
    found = {"white": "#ffffff"}
    for rules in (BLOCK.sub("", text), dark if scheme == "dark" else ""):
        found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", rules))
        found |= dict(re.findall(r"\.((?:hue|ink)\d) \{ (?:color|background): (#[0-9a-f]+)", rules))
    return found


def light(colour: str) -> float:
    """The relative luminance of a colour; how far it lets through what is behind it is left out."""
    digits = colour[1:] if len(colour) > len("#ffff") else "".join(one * 2 for one in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sheet", [CONSOLE, SANDBOX], ids=["console", "sandbox"])
def test_words_stand_out_from_their_ground(sheet: Path, scheme: str) -> None:
    known = colours(sheet, scheme)
    ratios = dict[tuple[str, str], float]()
    for words, ground in WRITTEN[sheet]:
        low, high = sorted((light(known[words]), light(known[ground])))
        ratios[words, ground] = round((high + 0.05) / (low + 0.05), 2)
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < LEAST} == {}
