"""The JSON Schemas of the wire envelopes: `python -m tests.schemas` writes docs/schemas anew."""

import json
from collections.abc import Mapping
from pathlib import Path

from shared.contracts import ENVELOPES

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> Mapping[str, object]:
    """The schema of one envelope as its model is now; `name` like notify.v1."""
    made = ENVELOPES[name].model_json_schema(by_alias=True, mode="validation")
    return {"$schema": DIALECT, **made, "title": name}


def text_of(name: str) -> str:
    """The schema as it lies in its file."""
    return json.dumps(schema_of(name), indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write one file per envelope."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ENVELOPES:
        (FOLDER / f"{name}.json").write_text(text_of(name), encoding="utf-8")
        print(f"docs/schemas/{name}.json")


if __name__ == "__main__":
    main()
