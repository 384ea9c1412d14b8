"""Puts the matrix into docs/security.md, between its two marks; run as `python -m tests.privileges.document`."""

from pathlib import Path
from typing import Final

from tests.privileges.matrix import ROLES, Matrix, read

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "security.md"
BEGIN: Final = "<!-- the matrix, generated from tests/privileges/matrix.txt -->"
END: Final = "<!-- the end of the matrix -->"


def table(matrix: Matrix) -> str:
    """The matrix in Markdown."""
    rows = [["object", *ROLES], ["---"] * (len(ROLES) + 1)]
    rows += [[name, *(" ".join(cells[role]) for role in ROLES)] for name, cells in matrix.items()]
    return "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |").replace("|  |", "| |") for row in rows)


def with_matrix(document: str) -> str:
    """The document with the matrix as the file has it."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest, f"{DOCUMENT.name} has no line {BEGIN}"
    assert after, f"{DOCUMENT.name} has no line {END}"
    return f"{before}{BEGIN}\n\n{table(read())}\n\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_matrix(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
