"""Tokens of every making: right ones by a stolen key, and those that only look like it."""

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Mapping
from typing import Final, cast

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.attacks.world import Arguments, Seen, World


async def mint(world: World, given: Arguments) -> Seen:
    """`token`: by the key of `key` for `to`, as a `hop`, a `client`, a `session` or a `desk`, with these changes.

    header and claims are added, `drop` leaves claims out, `alg` signs otherwise (none, HS256, ES256), `signer` is
    another key's name or `new`, `spoil` damages the finished token. A claim `now+60` is a time.
    """
    name, to, now = str(given["key"]), str(given["to"]), int(time.time())
    claims: dict[str, object] = {"iss": name, "sub": name, "aud": to, "scope": "hop"}
    if given.get("kind") == "client":
        claims = {"iss": "owner", "sub": f"client:{to}", "aud": to, "scope": "client"}
    elif given.get("kind") == "session":
        claims = {"iss": name, "sub": f"session:{to}", "aud": to, "scope": "session"}
    elif given.get("kind") == "desk":
        claims = {"iss": name, "sub": f"desk:{to}", "aud": to, "scope": "desk"}
    claims |= {"iat": now, "exp": now + 60, "jti": str(uuid.uuid4())}
    claims |= {key: _time(value, now) for key, value in cast("Mapping[str, object]", given.get("claims", {})).items()}
    claims = {key: value for key, value in claims.items() if key not in cast("list[str]", given.get("drop", []))}
    algorithm = str(given.get("alg", "EdDSA"))
    header = {"alg": algorithm, "typ": "JWT", **cast("Mapping[str, object]", given.get("header", {}))}
    signed = f"{_part(header)}.{_part(claims)}"
    signer = str(given.get("signer", name))
    signature = base64.urlsafe_b64encode(_signature(world, algorithm, signer, signed.encode())).rstrip(b"=").decode()
    token = _spoilt(f"{signed}.{signature}", str(given.get("spoil", "")))
    world.known[str(given.get("into", "token"))] = token
    return {"token": token, "text": ""}


async def borrow(world: World, given: Arguments) -> Seen:
    """`token`: a real client token of that butler, as its runtime holds it."""
    token = await world.fleet.token(str(given["of"]))
    world.known[str(given.get("into", "token"))] = token
    return {"token": token, "text": ""}


def _signature(world: World, algorithm: str, signer: str, signed: bytes) -> bytes:
    if algorithm == "none":
        return b""
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1()).sign(signed, ec.ECDSA(hashes.SHA256()))
    key = Ed25519PrivateKey.generate() if signer == "new" else _key_of(world, signer)
    if algorithm.startswith("HS"):
        # The confusion: the public key, which everybody may read, taken for a shared secret.
        public = base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).rstrip(b"=")
        return hmac.new(public, signed, hashlib.sha256).digest()
    return key.sign(signed)


def _key_of(world: World, name: str) -> Ed25519PrivateKey:
    key = load_pem_private_key(world.keys(name).private_pem, None)
    assert isinstance(key, Ed25519PrivateKey)
    return key


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()


def _time(value: object, now: int) -> object:
    """`now`, `now+60` and `now-3600` are times; everything else is itself."""
    if isinstance(value, str) and value.startswith("now"):
        return now + int(value[3:] or 0)
    return value


def _spoilt(token: str, how: str) -> str:
    header, payload, signature = token.split(".")
    flipped = ("A" if signature[:1] != "A" else "B") + signature[1:]
    return {
        "": token,
        "signature flipped": f"{header}.{payload}.{flipped}",
        "signature gone": f"{header}.{payload}.",
        "signature twice": f"{token}.{signature}",
        "cut": token[:-10],
        "payload only": payload,
        "two parts": f"{header}.{payload}",
        "padded": f"{token}==",
        "spaced": f"{header} .{payload}.{signature}",
        "long": f"{token}{'A' * 9000}",
        "lower": token.lower(),
    }[how]


VERBS: Final = {"mint": mint, "borrow": borrow}
