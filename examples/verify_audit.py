"""Check an exported audit without Butlers, its database or its code: only the file and the Messenger's public key.

    butlers audit export audit.jsonl
    python verify_audit.py audit.jsonl [KEY ...]

Give the public keys that you have kept, since those in the file come from where the file comes from.
"""
# ruff: noqa: INP001  # a program to copy, not a package

import base64
import json
import re
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def digest(*fields: str | None) -> str:
    """Return the SHA-256 over the fields as one JSON list without spaces; null and empty differ."""
    return sha256(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def is_signed(seal: dict[str, Any], keys: Sequence[str]) -> bool:
    """Return whether one of the keys (Ed25519, base64url) signed the seal's hash."""
    for key in keys:
        raw = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
        try:
            signed = b"butlers audit seal v1\n" + bytes.fromhex(seal["hash"])
            Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(seal["signature"]), signed)
        except InvalidSignature:
            continue
        return True
    return False


def flaws(records: Sequence[dict[str, Any]], keys: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for every seal and every line that is not what it was, or was slipped in among sealed ones."""
    lines = {int(one["line"][0]): one["line"] for one in records if "line" in one}
    prev, expected = "00" * 32, 1
    sealed, reach = set[int](), list[int]()
    for seal in (one["seal"] for one in records if "seal" in one):
        over = sha256(bytes.fromhex(seal["digests"])).hexdigest()
        said = digest("audit seal.v1", seal["prev"], str(seal["n"]), seal["seqs"], seal["at"], over)
        if (seal["n"], seal["prev"], seal["hash"]) != (expected, prev, said) or not is_signed(seal, keys):
            yield f"Seal {seal['n']} is not what the Messenger signed, or one before it is missing."
        spans = re.findall(r"\[(-?\d+),(-?\d+)\)", seal["seqs"])
        covered = [number for low, high in spans for number in range(int(low), int(high))]
        for place, number in enumerate(covered):
            wanted = seal["digests"][64 * place : 64 * place + 64]
            if number not in lines or digest("audit line.v1", *lines[number]) != wanted:
                yield f"Line {number} was changed or removed."
        prev, expected = seal["hash"], seal["n"] + 1
        sealed.update(covered)
        reach.append(max(sealed, default=0))
    # What committed late is covered by the next seal.
    before = max(reach[:-1], default=0)
    yield from (
        f"Line {number} is among the sealed ones, and no seal covers it: it was inserted, or held back by its writer."
        for number in sorted(set(lines) - sealed)
        if number <= before
    )
    if lines and not reach:
        yield "No seal is left."
    if len(lines) != sum("line" in one for one in records):
        yield "Two lines have one number: one was inserted."


if __name__ == "__main__":
    found = [json.loads(text) for text in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    wrong = list(flaws(found, sys.argv[2:] or found[0]["keys"]))
    sys.stdout.write("\n".join([*wrong, "The audit is broken." if wrong else "The audit is whole."]) + "\n")
    sys.exit(1 if wrong else 0)
