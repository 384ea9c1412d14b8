"""The folder of a new butler, as `butlers init` makes it."""

from pathlib import Path

from butlers.fleet import NAME, RESERVED
from shared.errors import Misconfigured


def scaffold(folder: Path, name: str) -> Path:
    """Make a new butler's folder with both files, or raise Misconfigured."""
    if name in RESERVED:
        taken = ", ".join(sorted(RESERVED))
        raise Misconfigured(f"`{name}` is a reserved name.", f"Choose another name; reserved are {taken}.")
    if not NAME.fullmatch(name):
        raise Misconfigured(f"`{name}` is not a valid name for a butler.", "Use a small letter, then a-z, 0-9 and _.")
    made = folder / name
    if made.exists():
        raise Misconfigured(f"{made} already exists.", "Choose another name.")
    try:
        made.mkdir(parents=True)
    except OSError as refused:
        raise Misconfigured(f"{made} cannot be created: {refused.strerror}.", "Correct --fleet.") from None
    toml = f'name = "{name}"\ndescription = "Say in one sentence what {name} is for."\n'
    (made / "butler.toml").write_text(toml, encoding="utf-8")
    (made / "PERSONA.md").write_text(f"# {name}\n\nWho this butler is, and how it speaks.\n", encoding="utf-8")
    return made
