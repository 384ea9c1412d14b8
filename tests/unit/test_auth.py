"""Who is calling: every forged or stale token is refused, every true one names its caller."""

import base64
import hmac
import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256

import jwt
import pytest

from shared.auth.keypairs import generate_key, public_key, sign
from shared.auth.mac import tag, tag_matches
from shared.auth.tokens import Caller, Signer, Unauthorized, Verifier, mint_client_token, mint_session_token
from shared.errors import Misconfigured, Unavailable

NOW = 1_800_000_000
PEMS = {name: generate_key()[0] for name in ("owner", "switchboard", "messenger", "health", "stranger", "next_health")}
KEYS = {name: [public_key(PEMS[name])] for name in ("owner", "switchboard", "messenger", "health")}


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Tokens:
    """The ids of live client tokens and sessions, counting how often they were asked."""

    def __init__(self) -> None:
        self.live: set[str] = set()
        self.asked = 0

    async def __call__(self, caller: Caller) -> bool:
        self.asked += 1
        return caller.jti in self.live


def keyring(name: str) -> list[str]:
    """Careless on purpose: it would look up a path's last part."""
    return KEYS.get(name.rsplit("/", 1)[-1], [])


def claims(**changes: object) -> dict[str, object]:
    """A hop token's claims from health to switchboard, with changes; None takes a claim away."""
    plain: dict[str, object] = {
        "iss": "health",
        "sub": "health",
        "aud": "switchboard",
        "scope": "hop",
        "iat": NOW,
        "exp": NOW + 120,
        "jti": "0123456789abcdef",
    }
    return {name: value for name, value in (plain | changes).items() if value is not None}


def signed(payload: Mapping[str, object], *, by: str = "health", headers: Mapping[str, object] | None = None) -> str:
    return jwt.encode(dict(payload), PEMS[by].decode(), algorithm="EdDSA", headers=dict(headers or {}))


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def handmade(header: object, payload: object, sign: Callable[[bytes], bytes]) -> str:
    body = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(payload).encode())}"
    return f"{body}.{b64(sign(body.encode()))}"


def by_hand(payload: str, header: str = '{"alg":"EdDSA","typ":"JWT"}') -> str:
    """A token whose parts are these very texts, truly signed by health."""
    body = f"{b64(header.encode())}.{b64(payload.encode())}"
    return f"{body}.{b64(sign(PEMS['health'], body.encode()))}"


def with_spare_bits(part: str) -> str:
    """The same bytes in another spelling: the bits of the last character that no byte uses are set."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return part[:-1] + letters[letters.index(part[-1]) + 1]


def with_public_key_as_secret(secret: bytes) -> str:
    header = {"alg": "HS256", "typ": "JWT"}
    return handmade(header, claims(), lambda body: hmac.new(secret, body, sha256).digest())


def tampered(token: str) -> str:
    header, _, signature = token.split(".")
    return f"{header}.{b64(json.dumps(claims(jti='fedcba9876543210')).encode())}.{signature}"


def client(**changes: object) -> dict[str, object]:
    return claims(
        **{"iss": "owner", "sub": "client:switchboard", "scope": "client", "exp": NOW + 3600, "jti": "live-token"}
        | changes
    )


def session(**changes: object) -> dict[str, object]:
    return claims(
        **{"aud": "health", "sub": "session:health", "scope": "session", "exp": NOW + 3600, "jti": "live-token"}
        | changes
    )


RAW_PUBLIC = base64.urlsafe_b64decode(KEYS["health"][0] + "=")
PLAIN_HEADER = b64(b'{"alg":"EdDSA","typ":"JWT"}')
BAD_TOKENS = {
    "nothing": "",
    "not a token": "health",
    "two dots only": "..",
    "non-ASCII": "é" + signed(claims()),
    "a lone surrogate": "\udcff",
    "very long": signed(claims()) + "A" * 3000,
    "alg none": handmade({"alg": "none", "typ": "JWT"}, claims(), lambda _: b""),
    "alg None in capitals": handmade({"alg": "NONE", "typ": "JWT"}, claims(), lambda _: b""),
    "EdDSA without signature": handmade({"alg": "EdDSA", "typ": "JWT"}, claims(), lambda _: b""),
    "HS256 with the public key's text": with_public_key_as_secret(KEYS["health"][0].encode()),
    "HS256 with the public key's bytes": with_public_key_as_secret(RAW_PUBLIC),
    "header kid": signed(claims(), headers={"kid": "owner"}),
    "header crit": signed(claims(), headers={"crit": ["x"], "x": 1}),
    "header without typ": handmade({"alg": "EdDSA"}, claims(), lambda _: b"\0" * 64),
    "header that is a list": handmade(["EdDSA"], claims(), lambda _: b"\0" * 64),
    "claims that are a list": handmade({"alg": "EdDSA", "typ": "JWT"}, [], lambda _: b"\0" * 64),
    "claims nested a thousand deep": f"{PLAIN_HEADER}.{b64(b'[' * 1400)}.AA",
    "header nested a thousand deep": f"{b64(b'[' * 1400)}.{b64(b'{}')}.AA",
    "no iss": signed(claims(iss=None)),
    "no sub": signed(claims(sub=None)),
    "no aud": signed(claims(aud=None)),
    "no scope": signed(claims(scope=None)),
    "no iat": signed(claims(iat=None)),
    "no exp": signed(claims(exp=None)),
    "no jti": signed(claims(jti=None)),
    "empty jti": signed(claims(jti="")),
    "one claim too many": signed(claims(nbf=NOW)),
    "aud a list with ours among them": signed(claims(aud=["switchboard", "messenger"])),
    "aud a list of ours alone": signed(claims(aud=["switchboard"])),
    "wrong aud": signed(claims(aud="messenger")),
    "aud in capitals": signed(claims(aud="Switchboard")),
    "expired": signed(claims(iat=NOW - 200, exp=NOW - 80)),
    "expired by six seconds": signed(claims(iat=NOW - 100, exp=NOW - 6)),
    "end before its beginning": signed(claims(iat=NOW + 4, exp=NOW)),
    "a hop token for an hour": signed(claims(exp=NOW + 3600)),
    "a hop token for 121 seconds": signed(claims(exp=NOW + 121)),
    "iat in the future": signed(claims(iat=NOW + 60, exp=NOW + 100)),
    "exp as text": signed(claims(exp=str(NOW + 60))),
    "exp as a fraction": signed(claims(exp=NOW + 60.5)),
    "exp as NaN": signed(claims(exp=float("nan"))),
    "exp as true": signed(claims(exp=True)),
    "another daemon's key under our name": signed(claims(), by="messenger"),
    "an unknown key under a known name": signed(claims(), by="stranger"),
    "an unknown name": signed(claims(iss="stranger", sub="stranger"), by="stranger"),
    "a name that is a path": signed(claims(iss="../health", sub="../health")),
    "iss and sub differ": signed(claims(sub="switchboard")),
    "the owner's key as a daemon": signed(claims(iss="owner", sub="owner"), by="owner"),
    "an unknown scope": signed(claims(scope="admin")),
    "two scopes": signed(claims(scope="hop client")),
    "tampered claims": tampered(signed(claims())),
    "cut signature": signed(claims())[:-8],
    "signature with spare bits set": with_spare_bits(signed(claims())),
    "signature doubled": signed(claims()) + signed(claims()).rpartition(".")[2],
    "padded signature": signed(claims()) + "==",
    "padded claims": signed(claims()).replace(".", "=.", 2),
    "a fourth part": signed(claims()) + ".AA",
    "a newline after it": signed(claims()) + "\n",
    "a space before it": " " + signed(claims()),
    "a newline within it": signed(claims())[:-3] + "\n" + signed(claims())[-3:],
    "a NUL after it": signed(claims()) + "\0",
    "a claim twice": by_hand(json.dumps(claims())[:-1] + ', "aud": "switchboard"}'),
    "another issuer first": by_hand('{"iss": "owner", ' + json.dumps(claims())[1:]),
    "alg none first and EdDSA second": by_hand(json.dumps(claims()), '{"alg":"none","alg":"EdDSA","typ":"JWT"}'),
    "header with spaces": by_hand(json.dumps(claims()), '{"alg": "EdDSA", "typ": "JWT"}'),
    "header jwk": signed(claims(), headers={"jwk": {"kty": "OKP", "crv": "Ed25519", "x": KEYS["health"][0]}}),
    "header jku": signed(claims(), headers={"jku": "http://127.0.0.1/keys"}),
    "RS256 by name": by_hand(json.dumps(claims()), '{"alg":"RS256","typ":"JWT"}'),
    "more than one object": by_hand(json.dumps(claims()) + "{}"),
    "a sub that ends with a newline": signed(claims(sub="health\n", iss="health\n")),
    "a jti that ends with a newline": signed(claims(jti="0123456789abcdef\n")),
    "exp below zero": signed(claims(iat=-200, exp=-100)),
    "exp without end": by_hand(json.dumps(claims(exp=float("inf")))),
    "exp of a thousand digits": signed(claims(exp=10**1000)),
    "exp of ten thousand digits": by_hand(json.dumps(claims()).replace(str(NOW + 120), "9" * 1500)),
    "iat as true": signed(claims(iat=True, exp=100)),
    "iat null": by_hand(json.dumps(claims()).replace(f'"iat": {NOW}', '"iat": null')),
    "a client of another butler": signed(client(sub="client:health"), by="owner"),
    "a client token for another audience": signed(client(sub="client:health", aud="health"), by="owner"),
    "a client token a butler signed": signed(client(iss="health"), by="health"),
    "a client token a butler signed as owner": signed(client(), by="health"),
    "a client with scope hop": signed(client(scope="hop", exp=NOW + 60), by="owner"),
    "a revoked client token": signed(client(jti="revoked-token"), by="owner"),
    "a session of another butler": signed(session(), by="health"),
    "a session here that another butler signed": signed(session(aud="switchboard", sub="session:switchboard")),
    "a session that names another audience": signed(session(aud="switchboard")),
    "a session the owner signed": signed(
        session(iss="owner", aud="switchboard", sub="session:switchboard"), by="owner"
    ),
    "a session that says it is a client": signed(session(sub="client:health", aud="switchboard")),
    "an expired client token": signed(client(iat=NOW - 3600, exp=NOW - 60), by="owner"),
}


def verifier(
    clock: Clock, *, audience: str = "switchboard", accepts: frozenset[str] | None = None, tokens: Tokens | None = None
) -> Verifier:
    live = tokens or Tokens()
    live.live.add("live-token")
    return Verifier(audience, keyring, clock, accepts=accepts, is_live=live)


@pytest.mark.parametrize("token", [pytest.param(token, id=name) for name, token in BAD_TOKENS.items()])
async def test_a_bad_token_is_refused(token: str) -> None:
    with pytest.raises(Unauthorized) as refusal:
        await verifier(Clock()).verify(token)
    assert refusal.value.code == "unauthorized"
    assert refusal.value.message.startswith("The token ")
    assert refusal.value.remedy


async def test_the_tables_true_tokens_are_accepted() -> None:
    """The same builders without a flaw pass, so that each refusal above is of its flaw alone."""
    hop = await verifier(Clock()).verify(signed(claims()))
    of_client = await verifier(Clock()).verify(signed(client(), by="owner"))
    assert hop == Caller("health", "hop", "0123456789abcdef")
    assert of_client == Caller("switchboard", "client", "live-token")


async def test_a_hop_token_names_its_signer_within_the_leeway() -> None:
    clock = Clock()
    token = Signer("health", PEMS["health"], clock).token_for("switchboard")
    for now in (NOW - 5, NOW, NOW + 125):
        assert (await verifier(Clock(now)).verify(token)).name == "health"
    for now in (NOW - 6, NOW + 126):
        with pytest.raises(Unauthorized):
            await verifier(Clock(now)).verify(token)


async def test_only_accepted_daemons_may_call() -> None:
    clock = Clock()
    messenger = verifier(clock, audience="messenger", accepts=frozenset({"switchboard"}))
    caller = await messenger.verify(Signer("switchboard", PEMS["switchboard"], clock).token_for("messenger"))
    assert (caller.name, caller.kind) == ("switchboard", "hop")
    with pytest.raises(Unauthorized, match="may not call this one"):
        await messenger.verify(Signer("health", PEMS["health"], clock).token_for("messenger"))


async def test_without_a_revocation_check_no_client_is_served() -> None:
    with pytest.raises(Unauthorized, match="clients are not served"):
        await Verifier("switchboard", keyring, Clock()).verify(signed(client(), by="owner"))


async def test_a_remembered_token_still_expires() -> None:
    clock = Clock()
    ours = verifier(clock)
    token = Signer("health", PEMS["health"], clock).token_for("switchboard")
    await ours.verify(token)
    clock.now += 126
    with pytest.raises(Unauthorized, match="expired"):
        await ours.verify(token)


async def test_old_and_new_key_count_while_one_replaces_the_other() -> None:
    both = [public_key(PEMS["health"]), public_key(PEMS["next_health"])]
    ours = Verifier("switchboard", lambda _: both, Clock())
    for by in ("health", "next_health"):
        assert (await ours.verify(signed(claims(), by=by))).name == "health"


async def test_revoking_a_client_token_is_felt_after_five_seconds() -> None:
    clock, tokens = Clock(), Tokens()
    ours = verifier(clock, audience="health", tokens=tokens)
    minted = mint_client_token(Signer("owner", PEMS["owner"], clock), "health", timedelta(days=30))
    tokens.live.add(minted.jti)
    assert await ours.verify(minted.token) == Caller("health", "client", minted.jti)
    assert await ours.verify(minted.token) == Caller("health", "client", minted.jti)
    assert tokens.asked == 1
    tokens.live.clear()
    clock.now += 5
    with pytest.raises(Unauthorized, match="revoked"):
        await ours.verify(minted.token)


@pytest.mark.parametrize("kind", ["hop", "client"])
async def test_a_key_that_is_retired_proves_nothing_more_not_even_what_was_seen_before(kind: str) -> None:
    ring = {"health": [public_key(PEMS["next_health"]), *KEYS["health"]], "owner": list(KEYS["owner"])}
    tokens = Tokens()
    tokens.live.add("live-token")
    ours = Verifier("switchboard", lambda name: ring.get(name, []), Clock(), is_live=tokens)
    token = signed(claims()) if kind == "hop" else signed(client(), by="owner")
    assert (await ours.verify(token)).kind == kind
    next_token = signed(claims(), by="next_health")
    assert (await ours.verify(next_token)).name == "health"
    ring["health"].remove(KEYS["health"][0])
    ring["owner"].clear()
    for _ in range(2):
        with pytest.raises(Unauthorized, match="not signed by the daemon it names"):
            await ours.verify(token)
    assert (await ours.verify(next_token)).name == "health"


async def test_a_revocation_check_that_cannot_tell_lets_nobody_in() -> None:
    async def cannot_tell(_: Caller) -> bool:
        raise Unavailable("The database is away.")

    ours = Verifier("switchboard", keyring, Clock(), is_live=cannot_tell)
    with pytest.raises(Unavailable):
        await ours.verify(signed(client(), by="owner"))


async def test_a_session_acts_as_its_butler_until_it_ends() -> None:
    clock, sessions = Clock(), Tokens()
    token = mint_session_token(Signer("health", PEMS["health"], clock), "a-session-of-health", timedelta(hours=1))
    ours = Verifier("health", keyring, clock, is_live=sessions)
    with pytest.raises(Unauthorized, match="is of a session that has ended"):
        await ours.verify(token)
    sessions.live.add("a-session-of-health")
    clock.now += 6
    caller = await ours.verify(token)
    assert caller == Caller("health", "session", "a-session-of-health")
    assert caller.session == "a-session-of-health"
    sessions.live.clear()
    clock.now += 6
    with pytest.raises(Unauthorized, match="is of a session that has ended"):
        await ours.verify(token)


def test_a_client_token_is_minted_by_the_owner_alone() -> None:
    clock = Clock()
    minted = mint_client_token(Signer("owner", PEMS["owner"], clock), "health", timedelta(days=30))
    assert (minted.issued_at, minted.expires_at) == (NOW, NOW + 30 * 86400)
    assert minted.token not in repr(minted)
    with pytest.raises(ValueError, match="signed by owner"):
        mint_client_token(Signer("health", PEMS["health"], clock), "health", timedelta(days=30))


def test_a_hop_token_is_minted_once_per_callee_and_minute() -> None:
    clock = Clock()
    signer = Signer("health", PEMS["health"], clock)
    first = signer.token_for("switchboard")
    assert signer.token_for("messenger") != first
    clock.now += 59
    assert signer.token_for("switchboard") == first
    clock.now += 1
    assert signer.token_for("switchboard") != first
    clock.now -= 3600  # the clock was set back: what was minted is now from the future
    assert jwt.decode(signer.token_for("switchboard"), options={"verify_signature": False})["iat"] == clock.now


def test_a_key_file_that_is_no_key_is_said_in_words() -> None:
    for pem in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        with pytest.raises(Misconfigured, match="Ed25519"):
            public_key(pem)


async def test_a_keyring_entry_that_is_no_key_is_said_in_words() -> None:
    with pytest.raises(Misconfigured, match="public key"):
        await Verifier("switchboard", lambda _: ["AAAA"], Clock()).verify(signed(claims()))


def test_a_tag_binds_every_field_and_its_borders() -> None:
    key = b"k" * 32
    made = tag(key, "approve", "12", "3")
    assert len(made) == 22
    assert tag_matches(key, made, "approve", "12", "3")
    for fields in (("approve", "1", "23"), ("approve", "123"), ("approve", "12", "3", ""), ("deny", "12", "3")):
        assert not tag_matches(key, made, *fields)
    assert not tag_matches(b"x" * 32, made, "approve", "12", "3")
    for candidate in ("", made[:-1], made + "A", "é" * 22, made.swapcase()):
        assert not tag_matches(key, candidate, "approve", "12", "3")


async def test_a_remembered_token_costs_a_tenth_of_a_new_one() -> None:
    """Relative, so that a slow machine proves the same: a look-up, not a signature.

    Of several rounds of look-ups the quickest counts, as a collection of garbage may fall into any.
    """
    clock = Clock()
    ours = verifier(clock)
    signer = Signer("health", PEMS["health"], clock)
    tokens = [signer.mint({"sub": "health", "aud": "switchboard", "scope": "hop"}, 120).token for _ in range(200)]
    seconds = []
    for _ in range(6):
        begun = time.process_time()
        for token in tokens:
            await ours.verify(token)
        seconds.append(time.process_time() - begun)
    assert min(seconds[1:]) < seconds[0] / 10
