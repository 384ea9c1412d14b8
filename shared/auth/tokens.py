"""Tokens that prove who is calling: of daemons (hop), clients, sessions and desks, and the one verifier.

A token is a JWT (RFC 7519) of exactly seven claims, signed with EdDSA (RFC 8037) by an Ed25519 key. The key is chosen
by the issuer that the token names and never by anything else in it, so a stolen key can only speak for its owner. Times
are seconds since 1970 by the `clock` handed in.
"""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, cast

import jwt
from cachetools import FIFOCache

from shared.auth.keypairs import load_private, signer_of
from shared.errors import ButlersError

Clock = Callable[[], float]
Keyring = Callable[[str], Collection[str]]  # name -> its public keys, several while one replaces another
Tell = Callable[[str, str], Awaitable[None]]  # who was refused, although it proved who it is, and why

OWNER: Final = "owner"
CONSOLE: Final = "console"
HOP_SECONDS: Final = 120
_REMINT_SECONDS: Final = 60
_LEEWAY: Final = 5
_LIVE_SECONDS: Final = 5
_LONGEST_TOKEN: Final = 2048
_MOST: Final = 1024
_ALGORITHM: Final = "EdDSA"
_CLAIMS: Final = frozenset({"iss", "sub", "aud", "scope", "iat", "exp", "jti"})
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
_JTI: Final = re.compile(r"[A-Za-z0-9_-]{8,64}", re.ASCII)
_HEADER: Final = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9"  # {"alg":"EdDSA","typ":"JWT"}
# 86 characters are 64 bytes and four bits, which are zero.
_TOKEN: Final = re.compile(
    rf"(?P<signed>{_HEADER}\.(?P<payload>[A-Za-z0-9_-]+))\.(?P<signature>[A-Za-z0-9_-]{{85}}[AQgw])", re.ASCII
)


class Unauthorized(ButlersError):
    """The error where a token does not prove who is calling."""

    code = "unauthorized"


class NotForHere(Unauthorized):
    """The error where a token of ours does not count here or now; its bearer is told why."""


CallerKind = Literal["hop", "client", "session", "classifier", "desk"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The one a verified token speaks for: a daemon itself (hop), or who acts as one butler.

    That is a client with a token of the owner's, or a session, the jti of whose token is its own id. A session that
    classifies may call nothing. A desk acts as no butler: it answers questions at the console.
    """

    name: str
    kind: CallerKind
    jti: str

    @property
    def session(self) -> str | None:
        """Return the id of the session that calls, or None."""
        return self.jti if self.kind == "session" else None


# Whether the row that a caller's jti names counts still: a client token that nobody revoked, a session that goes on.
IsLive = Callable[[Caller], Awaitable[bool]]


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


@dataclass(frozen=True, slots=True)
class _Proved:
    """A proved caller, until when, and the key of which name proved it: once it is retired, it proves nothing more."""

    caller: Caller
    name: str
    key: str
    until: float


class Signer:
    """The holder of one private key, which mints tokens in its own name."""

    def __init__(
        self, name: str, private_pem: bytes, clock: Clock, new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    ) -> None:
        self.name = name
        self._key = load_private(private_pem)
        self._clock = clock
        self._new_id = new_id
        self._minted: dict[str, tuple[float, str]] = {}

    def token_for(self, callee: str) -> str:
        """Return a hop token for this callee, with at least 60 of its 120 seconds left; the same one for a minute."""
        now = self._clock()
        minted_at, token = self._minted.get(callee, (float("-inf"), ""))
        if not 0 <= now - minted_at < _REMINT_SECONDS:
            token = self.mint({"sub": self.name, "aud": callee, "scope": "hop"}, HOP_SECONDS).token
            self._minted[callee] = (now, token)
        return token

    def mint(self, claims: Mapping[str, str], seconds: int, jti: str | None = None) -> ClientToken:
        """Mint a token of these claims (sub, aud, scope) in our name, valid for so many seconds from now."""
        now = int(self._clock())
        jti = jti or self._new_id()
        payload = {"iss": self.name, **claims, "iat": now, "exp": now + seconds, "jti": jti}
        return ClientToken(jwt.encode(payload, self._key, algorithm=_ALGORITHM), jti, now, now + seconds)


def mint_client_token(owner: Signer, butler: str, lifetime: timedelta) -> ClientToken:
    """Mint a token by which a client acts as this one butler; the signer must hold the owner's key."""
    if owner.name != OWNER:
        raise ValueError(f"client tokens are signed by {OWNER}, not by {owner.name}")
    claims = {"sub": f"client:{butler}", "aud": butler, "scope": "client"}
    return owner.mint(claims, max(1, int(lifetime.total_seconds())))


def mint_session_token(
    butler: Signer, session_id: str, lifetime: timedelta, scope: Literal["session", "classifier"] = "session"
) -> str:
    """Mint the token by which one session acts as its butler, until it ends; the butler's own key signs it.

    With the scope `classifier` it is let in, and may call nothing.
    """
    claims = {"sub": f"{scope}:{butler.name}", "aud": butler.name, "scope": scope}
    return butler.mint(claims, max(1, int(lifetime.total_seconds())), session_id).token


def mint_desk_token(console: Signer, lifetime: timedelta) -> ClientToken:
    """Mint the token by which one desk answers the owner's questions; only the console's own key makes one."""
    return console.mint({"sub": f"desk:{CONSOLE}", "aud": CONSOLE, "scope": "desk"}, int(lifetime.total_seconds()))


class Verifier:
    """The verifier that tells one audience who is calling, from the token alone.

    `accepts` names the daemons whose hop tokens count (None: all the keyring knows); the tokens of clients and sessions
    count if `is_live` is given. A verified token is remembered by its SHA-256 for at most two minutes and never beyond
    its end or that of its key; whether a client or a session still counts is asked again after five seconds.
    """

    def __init__(
        self,
        audience: str,
        keyring: Keyring,
        clock: Clock,
        *,
        accepts: frozenset[str] | None = None,
        is_live: IsLive | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._audience = audience
        self._keyring = keyring
        self._clock = clock
        self._accepts = accepts
        self._is_live = is_live
        self._tell = tell
        # Each end stands with what ends: a cache with a clock of its own would double the price of a look.
        self._verified: FIFOCache[bytes, _Proved] = FIFOCache(_MOST)
        self._live: FIFOCache[Caller, tuple[bool, float]] = FIFOCache(_MOST)

    async def verify(self, token: str) -> Caller:
        """Return the caller this token proves; raise Unauthorized, or what `is_live` raises if it cannot tell."""
        now = self._clock()
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._verified.get(digest)
        if known is None or now >= known.until or known.key not in self._keyring(known.name):
            claims, key = _signed_claims(token, self._keyring)
            async with self._telling(claims.sub):
                caller = self._caller(claims, now)
            known = _Proved(caller, claims.iss, key, min(claims.exp + _LEEWAY, now + HOP_SECONDS))
            self._verified[digest] = known
        if known.caller.kind != "hop":
            async with self._telling(f"{known.caller.kind}:{known.caller.name}"):
                await self._demand_live(known.caller, now)
        return known.caller

    @asynccontextmanager
    async def _telling(self, who: str) -> AsyncIterator[None]:
        try:
            yield
        except Unauthorized as refused:
            if self._tell is not None:
                await self._tell(who, refused.message)
            raise NotForHere(refused.message, refused.remedy) from None

    def _caller(self, claims: _Claims, now: float) -> Caller:
        if claims.aud != self._audience:
            remedy = f"`butlers mcp-config {claims.aud}` prints the address of `{claims.aud}`."
            raise _refused(f"is not for `{self._audience}`", remedy)
        _demand(claims.iat < claims.exp and now <= claims.exp + _LEEWAY, "has expired")
        _demand(claims.iat <= now + _LEEWAY, "was issued in the future")
        if claims.scope == "hop":
            _demand(claims.exp - claims.iat <= HOP_SECONDS, "is valid for longer than allowed")
            _demand(
                self._accepts is None or claims.sub in self._accepts, "belongs to a daemon that may not call this one"
            )
            return Caller(claims.sub, "hop", claims.jti)
        _demand(claims.sub == f"{claims.scope}:{self._audience}", "is for another butler")
        _demand(self._is_live is not None, f"is a {claims.scope} token, and {claims.scope}s are not served here")
        return Caller(self._audience, cast("CallerKind", claims.scope), claims.jti)

    async def _demand_live(self, caller: Caller, now: float) -> None:
        live, until = self._live.get(caller, (False, now))
        if now >= until and self._is_live is not None:
            live = await self._is_live(caller)
            self._live[caller] = (live, now + _LIVE_SECONDS)
        _demand(live is True, "was revoked" if caller.kind in {"client", "desk"} else "is of a session that has ended")


def _signed_claims(token: str, keyring: Keyring) -> tuple[_Claims, str]:
    """Return the claims, and the key that has proved them, which is one of the issuer they name.

    There is one way to write a token. Nothing in its header may choose the key or how it is read (kid, jwk, crit).
    """
    found = _TOKEN.fullmatch(token) if len(token) <= _LONGEST_TOKEN else None
    if found is None:
        raise _refused("is not one of ours")
    said = _claims(_payload(found["payload"]))
    key = signer_of(found["signed"].encode(), _raw(found["signature"]), keyring(said.iss))
    if key is None:
        raise _refused("is not signed by the daemon it names")
    return said, key


def _payload(text: str) -> Mapping[str, object]:
    """Return the object in that part of a token, in which each name must occur once."""
    raw = _raw(text)
    _demand(_b64(raw) == text, "is not one of ours")
    try:
        payload = json.loads(raw, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        raise _refused("is not one of ours")
    return payload


def _each_once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    _demand(len(dict(pairs)) == len(pairs), "repeats a claim")
    return dict(pairs)


def _claims(payload: Mapping[str, object]) -> _Claims:
    _demand(payload.keys() == _CLAIMS, "lacks a claim, or has one too many")
    texts = {name: payload[name] for name in ("iss", "sub", "aud", "scope", "jti")}
    times = {name: payload[name] for name in ("iat", "exp")}
    _demand(all(type(text) is str for text in texts.values()), "has a claim of the wrong type")
    _demand(all(type(time) is int for time in times.values()), "has a time of the wrong type")
    claims = _Claims(**texts, **times)  # type: ignore[arg-type]  # the two lines above are the check
    _demand(_JTI.fullmatch(claims.jti) is not None, "has no valid id")
    # A desk's token the console signs for itself: no other daemon has any use for one.
    is_desk = claims.scope == "desk" and claims.iss == claims.aud == CONSOLE and claims.sub == f"desk:{CONSOLE}"
    _demand(
        is_desk or _is_hop(claims) or _is_client(claims) or _is_session(claims),
        "contradicts itself about who it is from",
    )
    return claims


def _is_hop(claims: _Claims) -> bool:
    return claims.scope == "hop" and claims.iss == claims.sub != OWNER and _NAME.fullmatch(claims.sub) is not None


def _is_client(claims: _Claims) -> bool:
    return claims.scope == "client" and claims.iss == OWNER and claims.sub.startswith("client:")


def _is_session(claims: _Claims) -> bool:
    """Return whether a butler says it of a session of its own: no other key can."""
    return (
        claims.scope in {"session", "classifier"}
        and claims.iss != OWNER
        and claims.sub == f"{claims.scope}:{claims.iss}"
    )


def _demand(holds: object, otherwise: str) -> None:
    if not holds:
        raise _refused(otherwise)


def _refused(why: str, remedy: str = "Create a new one with `butlers token NAME`.") -> Unauthorized:
    return Unauthorized(f"The token {why}.", remedy)


def _raw(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
