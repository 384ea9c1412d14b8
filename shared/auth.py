"""Who is calling: Ed25519 keys, short hop tokens between daemons, client tokens, and the one verifier.

A token is a JWT (RFC 7519) of exactly seven claims, signed with EdDSA (RFC 8037). The key is chosen by
who the token says it is from and never by anything else in it, so a stolen key can only be its owner.
Times are seconds since 1970 by the `clock` handed in.
"""

import base64
import binascii
import hashlib
import hmac
import re
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Final, Literal

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.types import Options

from shared.errors import ButlersError, Misconfigured
from shared.remembered import Remembered

Clock = Callable[[], float]
Keyring = Callable[[str], Collection[str]]  # name -> its public keys, several while one replaces another
IsLive = Callable[[str], Awaitable[bool]]  # whether a client token's jti is a row that nobody revoked

OWNER: Final = "owner"
HOP_SECONDS: Final = 120
_REMINT_SECONDS: Final = 60
_LEEWAY: Final = 5
_LIVE_SECONDS: Final = 5
_LONGEST_TOKEN: Final = 2048
_ALGORITHM: Final = "EdDSA"
_CLAIMS: Final = frozenset({"iss", "sub", "aud", "scope", "iat", "exp", "jti"})
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
_JTI: Final = re.compile(r"[A-Za-z0-9_-]{8,64}", re.ASCII)
# Times are compared with the clock handed in, so PyJWT is asked for the signature and nothing else.
_SIGNATURE_ONLY: Final[Options] = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


class Unauthorized(ButlersError):
    """The token does not prove who is calling."""

    code = "unauthorized"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a verified token speaks for: a daemon itself (hop), or a client that acts as one butler."""

    name: str
    kind: Literal["hop", "client"]
    jti: str


@dataclass(frozen=True, slots=True)
class ClientToken:
    """A fresh client token; it counts only once its jti is a row of shared.client_tokens."""

    token: str = field(repr=False)
    jti: str
    issued_at: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class _Claims:
    iss: str
    sub: str
    aud: str
    scope: str
    jti: str
    iat: int
    exp: int


def generate_key() -> tuple[bytes, str]:
    """A new key: the private half as PKCS #8 PEM, the public half as 43 characters of base64url."""
    private = Ed25519PrivateKey.generate()
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), _public_text(private)


def public_key(private_pem: bytes) -> str:
    """The public half that belongs to a private one; raises Misconfigured if it is no Ed25519 key."""
    return _public_text(_load_private(private_pem))


class Signer:
    """The holder of one private key, who mints tokens in its own name."""

    def __init__(
        self, name: str, private_pem: bytes, clock: Clock, new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    ) -> None:
        self.name = name
        self._key = _load_private(private_pem)
        self._clock = clock
        self._new_id = new_id
        self._minted: dict[str, tuple[float, str]] = {}

    def token_for(self, callee: str) -> str:
        """A hop token for this callee, with at least 60 of its 120 seconds left; the same one for a minute."""
        now = self._clock()
        minted_at, token = self._minted.get(callee, (float("-inf"), ""))
        if not 0 <= now - minted_at < _REMINT_SECONDS:
            token = self.mint({"sub": self.name, "aud": callee, "scope": "hop"}, HOP_SECONDS).token
            self._minted[callee] = (now, token)
        return token

    def mint(self, claims: Mapping[str, str], seconds: int) -> ClientToken:
        """A token of these claims (sub, aud, scope) from us, valid for so many seconds from now."""
        now = int(self._clock())
        jti = self._new_id()
        payload = {"iss": self.name, **claims, "iat": now, "exp": now + seconds, "jti": jti}
        return ClientToken(jwt.encode(payload, self._key, algorithm=_ALGORITHM), jti, now, now + seconds)


def mint_client_token(owner: Signer, butler: str, lifetime: timedelta) -> ClientToken:
    """A token by which a client acts as this one butler; the signer must hold the owner's key."""
    if owner.name != OWNER:
        raise ValueError(f"client tokens are signed by {OWNER}, not by {owner.name}")
    claims = {"sub": f"client:{butler}", "aud": butler, "scope": "client"}
    return owner.mint(claims, max(1, int(lifetime.total_seconds())))


class Verifier:
    """Tells one audience who is calling, from the token alone.

    `accepts` names the daemons whose hop tokens count (None: all the keyring knows); client tokens count
    if `is_live` is given. A verified token is remembered by its SHA-256 for at most two minutes and never
    beyond its end; whether a client token was revoked is asked again after five seconds.
    """

    def __init__(
        self,
        audience: str,
        keyring: Keyring,
        clock: Clock,
        *,
        accepts: frozenset[str] | None = None,
        is_live: IsLive | None = None,
    ) -> None:
        self._audience = audience
        self._keyring = keyring
        self._clock = clock
        self._accepts = accepts
        self._is_live = is_live
        self._verified: Remembered[bytes, Caller] = Remembered()
        self._live: Remembered[str, bool] = Remembered()

    async def verify(self, token: str) -> Caller:
        """The caller this token proves; raises Unauthorized, or what `is_live` raises if it cannot tell."""
        now = self._clock()
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        caller = self._verified.get(digest, now)
        if caller is None:
            claims = _signed_claims(token, self._keyring)
            caller = self._caller(claims, now)
            self._verified.put(digest, caller, min(claims.exp + _LEEWAY, now + HOP_SECONDS))
        if caller.kind == "client":
            await self._demand_live(caller.jti, now)
        return caller

    def _caller(self, claims: _Claims, now: float) -> Caller:
        _demand(claims.aud == self._audience, "was made for another daemon")
        _demand(claims.iat < claims.exp and now <= claims.exp + _LEEWAY, "has expired")
        _demand(claims.iat <= now + _LEEWAY, "comes from the future")
        if claims.scope == "hop":
            _demand(claims.exp - claims.iat <= HOP_SECONDS, "lives longer than a hop token may")
            _demand(self._accepts is None or claims.sub in self._accepts, "is of a daemon that may not call here")
            return Caller(claims.sub, "hop", claims.jti)
        _demand(claims.sub == f"client:{self._audience}", "is a client's of another butler")
        _demand(self._is_live is not None, "is a client's, and no clients are served here")
        return Caller(self._audience, "client", claims.jti)

    async def _demand_live(self, jti: str, now: float) -> None:
        live = self._live.get(jti, now)
        if live is None and self._is_live is not None:
            live = await self._is_live(jti)
            self._live.put(jti, live, now + _LIVE_SECONDS)
        _demand(live is True, "was revoked")


def _signed_claims(token: str, keyring: Keyring) -> _Claims:
    """The claims, once a key of the one they name has proved them."""
    _demand(token.isascii() and len(token) <= _LONGEST_TOKEN, "is no token of ours")
    try:
        _demand_plain_header(jwt.get_unverified_header(token))
        said = _claims(jwt.decode(token, options={"verify_signature": False, **_SIGNATURE_ONLY}))
        for key in keyring(said.iss):
            if _proves(key, token):
                return said
    except jwt.PyJWTError:
        raise _refused("is no token of ours") from None
    raise _refused("is not signed by the one it names")


def _proves(key: str, token: str) -> bool:
    try:
        jwt.decode(token, _load_public(key), algorithms=[_ALGORITHM], options=_SIGNATURE_ONLY)
    except jwt.InvalidSignatureError:
        return False
    return True


def _demand_plain_header(header: Mapping[str, object]) -> None:
    """Nothing in a header may choose the key or how it is read (kid, jwk, crit and the like)."""
    _demand(header == {"alg": _ALGORITHM, "typ": "JWT"}, "has a header that tokens here do not have")


def _claims(payload: Mapping[str, object]) -> _Claims:
    _demand(payload.keys() == _CLAIMS, "lacks a claim, or has one too many")
    texts = {name: payload[name] for name in ("iss", "sub", "aud", "scope", "jti")}
    times = {name: payload[name] for name in ("iat", "exp")}
    _demand(all(type(text) is str for text in texts.values()), "has a claim of the wrong type")
    _demand(all(type(time) is int for time in times.values()), "has a time of the wrong type")
    claims = _Claims(**texts, **times)  # type: ignore[arg-type]  # the two lines above are the check
    _demand(_JTI.fullmatch(claims.jti) is not None, "has no proper id")
    _demand(_is_hop(claims) or _is_client(claims), "does not say in one voice who it is from")
    return claims


def _is_hop(claims: _Claims) -> bool:
    return claims.scope == "hop" and claims.iss == claims.sub != OWNER and _NAME.fullmatch(claims.sub) is not None


def _is_client(claims: _Claims) -> bool:
    return claims.scope == "client" and claims.iss == OWNER and claims.sub.startswith("client:")


def tag(key: bytes, *fields: str) -> str:
    """22 characters that only a holder of the key can make for exactly these fields (HMAC-SHA256, 128 bits)."""
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for text in fields:
        raw = text.encode("utf-8", "surrogatepass")
        mac.update(len(raw).to_bytes(8, "big") + raw)
    return _b64(mac.digest()[:16])


def tag_matches(key: bytes, candidate: str, *fields: str) -> bool:
    """Whether `candidate` is the tag of these fields, in a time that tells nothing about the right one."""
    return hmac.compare_digest(candidate.encode("utf-8", "surrogatepass"), tag(key, *fields).encode())


def _demand(holds: object, otherwise: str) -> None:
    if not holds:
        raise _refused(otherwise)


def _refused(why: str) -> Unauthorized:
    return Unauthorized(f"The token {why}.", "Get a fresh one with `butlers token NAME`.")


def _load_private(pem: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Misconfigured("A private key file does not hold an Ed25519 key.", "Restore it, or run `butlers migrate`.")
    return key


@lru_cache(maxsize=256)
def _load_public(text: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error):
        raise Misconfigured("A public key of the keyring is not an Ed25519 key.", "Run `butlers migrate`.") from None


def _public_text(private: Ed25519PrivateKey) -> str:
    return _b64(private.public_key().public_bytes_raw())


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
