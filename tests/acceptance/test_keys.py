"""Keys are replaced and client tokens revoked beside running daemons; what is ended opens nothing within seconds."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from shared.auth import keystore
from shared.auth.keypairs import fingerprint, generate_key, public_key
from shared.auth.tokens import Signer
from shared.db import dsn
from shared.rpc import request_of
from shared.storage import keyring
from tests.acceptance.test_owner_commands import refused, said
from tests.rig import fresh
from tests.rig.bench import Bench, House
from tests.rig.fleet import Fleet
from tests.rig.waiting import LONGEST

pytestmark = pytest.mark.asyncio(loop_scope="session")

HEARD = {"name": "greeter", "url": "http://127.0.0.1:1", "kind": "butler", "tools": [], "status": "gone"}
# It waits for their ends, so that nobody begins anything on one that is about to go.
CUT_OFF = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE usename = $1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def apart(bench: Bench) -> AsyncIterator[Fleet]:
    """A fleet of this module's own, a process per daemon."""
    made = await Fleet.start(await bench.house(), "each")
    yield made
    await made.stop()


def pem_of(house: House, name: str) -> bytes:
    return keystore.read(house.home, name).private_pem


async def asked(fleet: Fleet, target: str, token: str, tool: str = "notification_status") -> int:
    """The HTTP status of a call with this token."""
    headers, body = request_of(token, tool, {}, 1)
    async with fleet.http.post(f"{fleet.url(target)}/mcp", json=body, headers=headers) as answer:
        return answer.status


async def hop(fleet: Fleet, caller: str, pem: bytes) -> int:
    """What a daemon that holds this key gets from the Switchboard."""
    return await asked(fleet, "switchboard", Signer(caller, pem, time.time).token_for("switchboard"), "heartbeat")


async def within_seconds(fleet: Fleet, caller: str, pem: bytes, status: int) -> None:
    """Until the running Switchboard answers so."""
    async with asyncio.timeout(LONGEST):
        while await hop(fleet, caller, pem) != status:
            await asyncio.sleep(0.1)


async def keys_of(fleet: Fleet, name: str) -> list[tuple[bool, bool]]:
    """Of each key of that name, the oldest first: whether it counts, and whether it is on file."""
    rows = json.loads(await said(fleet, "keys", "list", "--json"))["keys"]
    return [(row["retired_at"] is None, row["on_file"]) for row in rows if row["name"] == name]


@pytest.mark.slow
async def test_a_key_is_replaced_while_its_daemon_runs(apart: Fleet) -> None:
    old, password = pem_of(apart.house, "health"), keystore.read(apart.house.home, "health").password
    assert (await apart.notify(message=fresh.words("before"), channel="telegram"))["status"] == "ok"
    told = await said(apart, "keys", "rotate", "health")
    assert told.endswith("Both keys are valid. Restart health, then run `butlers keys retire health`.")
    new = pem_of(apart.house, "health")
    assert new != old
    assert keystore.read(apart.house.home, "health").password != password
    assert await keys_of(apart, "health") == [(True, False), (True, True)]
    await within_seconds(apart, "health", new, 200)
    assert await hop(apart, "health", old) == 200
    # What runs connects by the new password, and is believed with the old key.
    await apart.sql(CUT_OFF, f"{apart.house.name}_health")
    async with asyncio.timeout(LONGEST):
        while (await apart.status(f"{apart.url('health')}/readyz")) != 200:
            await asyncio.sleep(0.1)
    assert (await apart.notify(message=fresh.words("between"), channel="telegram"))["status"] == "ok"
    assert await apart.kill("health", signal.SIGTERM) == [0]
    await apart.restart("health")
    assert await said(apart, "keys", "retire", "health") == "Retired: 1. It is rejected within seconds."
    assert await keys_of(apart, "health") == [(False, False), (True, True)]
    await within_seconds(apart, "health", old, 401)
    assert await hop(apart, "health", new) == 200
    assert (await apart.notify(message=fresh.words("after"), channel="telegram"))["status"] == "ok"
    assert await said(apart, "keys", "retire", "health") == "There was no other key."
    assert fingerprint(public_key(new)) in await said(apart, "keys", "list")


@pytest.mark.slow
async def test_a_stolen_key_ends_at_once_and_with_it_what_is_connected(apart: Fleet) -> None:
    stolen = pem_of(apart.house, "greeter")
    await within_seconds(apart, "greeter", stolen, 200)
    before = await apart.value(
        "SELECT min(pid) FROM pg_stat_activity WHERE usename = $1", f"{apart.house.name}_greeter"
    )
    assert "Only the new key is valid." in await said(apart, "keys", "rotate", "greeter", "--now")
    assert await apart.value("SELECT count(*) FROM pg_stat_activity WHERE pid = $1", before) == 0
    await within_seconds(apart, "greeter", stolen, 401)
    await apart.kill("greeter", signal.SIGTERM)
    await apart.restart("greeter")
    assert await hop(apart, "greeter", pem_of(apart.house, "greeter")) == 200


@pytest.mark.slow
async def test_with_the_owners_key_the_client_tokens_end_that_it_signed(apart: Fleet) -> None:
    before = await said(apart, "token", "health")
    assert await asked(apart, "health", before) == 200
    assert "until `butlers keys retire owner`" in await said(apart, "keys", "rotate", "owner")
    after = await said(apart, "token", "health")
    assert await asked(apart, "health", before) == 200
    await said(apart, "keys", "retire", "owner")
    async with asyncio.timeout(LONGEST):
        while await asked(apart, "health", before) != 401:
            await asyncio.sleep(0.1)
        while await asked(apart, "health", after) != 200:
            await asyncio.sleep(0.1)


async def test_a_revoked_token_opens_nothing_after_five_seconds(fleet: Fleet) -> None:
    token, other = await said(fleet, "token", "health", "--for", "1h"), await said(fleet, "token", "health")
    assert [await asked(fleet, "health", one) for one in (token, other)] == [200, 200]
    listed = json.loads(await said(fleet, "tokens", "list", "--json"))["tokens"]
    [*_, mine, kept] = listed
    assert (mine["butler"], mine["revoked_at"], mine["counts"]) == ("health", None, True)
    assert token not in json.dumps(listed)
    assert await said(fleet, "tokens", "revoke", mine["id"][:13]) == "Revoked. It stops working within five seconds."
    async with asyncio.timeout(LONGEST):
        while await asked(fleet, "health", token) != 401:
            await asyncio.sleep(0.05)
    assert await asked(fleet, "health", other) == 200
    ids = [one["id"] for one in json.loads(await said(fleet, "tokens", "list", "--json"))["tokens"]]
    assert mine["id"] not in ids
    assert kept["id"] in ids
    everything = json.loads(await said(fleet, "tokens", "list", "--json", "--all"))["tokens"]
    assert [one["revoked_at"] is None for one in everything if one["id"] == mine["id"]] == [False]
    assert "already revoked" in await refused(fleet, "tokens", "revoke", mine["id"])
    assert "No token matches" in await refused(fleet, "tokens", "revoke", "f" * 30)
    assert mine["id"][:8] in await said(fleet, "tokens", "list", "--all")


@pytest.mark.parametrize("name", ["nobody", "../health", "", "sandbox"])
async def test_a_name_without_keys_is_refused(fleet: Fleet, name: str) -> None:
    for command in ("rotate", "retire"):
        assert "There are no keys of" in await refused(fleet, "keys", command, name)


async def run(house: House, *argv: str) -> tuple[int, str]:
    code, out, wrong = await house.butlers(*argv)
    return code, out + wrong


async def test_whoever_is_cut_off_in_a_rotation_finishes_it_by_a_second_one(bench: Bench) -> None:
    house = await bench.house()
    try:
        # Cut off when the new key lies on file and the password has not changed: all goes on.
        pem, public = generate_key()
        connection = await asyncpg.connect(house.dsn)
        await keyring.add_key(connection, "owner", public)
        keystore.replace_key(house.home, "owner", pem)
        assert (await run(house, "token", "health"))[0] == 0
        # Cut off when the new password lies on file and does not count: it is said, and a second run ends it.
        keystore.replace_password(house.home, "owner", "half way")
        code, told = await run(house, "keys", "list")
        assert (code, "butlers migrate" in told) == (1, True)
        assert (await run(house, "keys", "rotate", "owner"))[0] == 0
        assert (await run(house, "keys", "list"))[0] == 0
        keystore.replace_password(house.home, "owner", "half way again")
        assert (await run(house, "migrate"))[0] == 0
        assert (await run(house, "keys", "list"))[0] == 0
        assert {path.name for path in keystore.folder(house.home, "owner").iterdir()} == {
            "key.pem",
            "password",
            "secret",
            keystore.FORMER,
        }
        assert {path.stat().st_mode & 0o777 for path in keystore.folder(house.home, "owner").iterdir()} == {0o600}
        await connection.close()
    finally:
        house.close()


async def test_a_login_that_may_make_no_roles_replaces_nothing(bench: Bench) -> None:
    house = await bench.house()
    try:
        before = keystore.read(house.home, "greeter")
        weak = dsn.dsn_as(house.dsn, "messenger", keystore.read(house.home, "messenger").password)
        code, _, wrong = await house.butlers("keys", "rotate", "greeter", DATABASE_URL=weak)
        assert (code, wrong.count("\n"), "DATABASE_URL" in wrong) == (1, 1, True)
        code, _, wrong = await house.butlers("keys", "retire", "greeter", DATABASE_URL=weak)
        assert (code, wrong.count("\n"), "DATABASE_URL" in wrong) == (1, 1, True)
        assert keystore.read(house.home, "greeter") == before
        login = keystore.read(house.home, "up")
        code, _, wrong = await house.butlers("keys", "rotate", "up")
        assert (code, wrong) == (0, "")
        assert keystore.read(house.home, "up").password != login.password
        assert "Use `butlers keys rotate up`." in (await run(house, "keys", "retire", "up"))[1]
    finally:
        house.close()


async def test_a_retired_key_is_not_let_in_again_by_migrate(bench: Bench) -> None:
    house = await bench.house()
    try:
        connection = await asyncpg.connect(house.dsn)
        await keyring.retire_others(connection, "greeter", "none of them")
        await connection.close()
        code, told = await run(house, "migrate")
        assert (code, "butlers keys rotate greeter" in told) == (1, True)
        assert (await run(house, "keys", "rotate", "greeter"))[0] == 0
        assert (await run(house, "migrate"))[0] == 0
    finally:
        house.close()
