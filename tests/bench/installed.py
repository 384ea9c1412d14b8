"""What an installation takes: `python -m tests.bench.installed` counts what the lock names, and its bytes here."""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"


def section() -> str:
    """Count the distributions of requirements.lock that are installed here, and the MB of their files but for .pyc."""
    names = re.findall(r"^([a-z0-9][a-z0-9._-]*)==", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    sizes = list[int]()
    for name in names:
        try:
            files = distribution(name).files or []
        except PackageNotFoundError:  # of another system
            continue
        paths = [Path(str(one.locate())) for one in files if one.suffix != ".pyc"]
        sizes.append(sum(path.stat().st_size for path in paths if path.is_file()))
    return f"Installed are {len(sizes)} distributions, {sum(sizes) / 1e6:.0f} MB without .pyc."


if __name__ == "__main__":
    print(section())
