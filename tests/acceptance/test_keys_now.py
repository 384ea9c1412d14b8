"""`butlers keys rotate NAME --now` where it cannot: nothing is half done, and a sentence says what to do."""

import os
import signal
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from shared.auth import keystore
from shared.auth.keypairs import public_key
from shared.db.dsn import dsn_as
from tests.rig.bench import Bench, House

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNTING = "SELECT public_key FROM shared.keyring WHERE name = 'greeter' AND retired_at IS NULL ORDER BY added_at"
# It may make roles and write keys, and may not touch the logins that another made.
LIMITED = """
CREATE ROLE {role} LOGIN CREATEROLE PASSWORD 'limited';
GRANT butlers_group_butler, butlers_group_switchboard, butlers_group_messenger, butlers_group_console,
    butlers_group_owner TO {role} WITH ADMIN OPTION;
GRANT CONNECT ON DATABASE {database} TO {role};
GRANT SELECT, INSERT, UPDATE ON shared.keyring TO {role};
"""


@pytest_asyncio.fixture(loop_scope="module")
async def house(bench: Bench) -> AsyncIterator[House]:
    made = await bench.house()
    yield made
    made.close()


def login_of(house: House, name: str) -> str:
    """The URL by which that daemon connects, as it stands on file."""
    return dsn_as(house.dsn, name, keystore.read(house.home, name).password)


async def opens(dsn: str) -> bool:
    try:
        await (await asyncpg.connect(dsn)).close()
    except asyncpg.InvalidPasswordError:
        return False
    return True


async def counting(house: House) -> list[str]:
    """The keys of the greeter that count, the oldest first."""
    connection = await asyncpg.connect(house.dsn)
    try:
        return [str(row["public_key"]) for row in await connection.fetch(COUNTING)]
    finally:
        await connection.close()


async def test_where_the_password_cannot_be_changed_the_former_one_counts_and_opens(house: House) -> None:
    before = keystore.read(house.home, "greeter")
    superuser = await asyncpg.connect(house.dsn)
    role = f"{house.name}_limited"
    await superuser.execute(LIMITED.format(role=role, database=house.name))
    limited = f"postgresql://{role}:limited@{urlsplit(house.dsn).netloc.rpartition('@')[2]}/{house.name}"
    code, out, wrong = await house.butlers("keys", "rotate", "greeter", "--now", DATABASE_URL=limited)
    assert (code, out, wrong.count("\n")) == (1, "", 1)
    assert "is not allowed to do this: permission denied to alter role." in wrong
    assert "Run the command again with the login that ran `butlers migrate`." in wrong
    after = keystore.read(house.home, "greeter")
    assert after.password == before.password
    assert await opens(login_of(house, "greeter"))
    # The old key counts no more, whatever becomes of the login.
    assert await counting(house) == [public_key(after.private_pem)]
    await superuser.close()
    code, out, wrong = await house.butlers("keys", "rotate", "greeter", "--now")
    assert (code, "Only the new key is valid." in out, wrong) == (0, True, "")
    last = keystore.read(house.home, "greeter")
    assert await counting(house) == [public_key(last.private_pem)]
    assert last.password != before.password
    assert await opens(login_of(house, "greeter"))


async def test_a_connection_that_does_not_end_is_named_and_all_else_is_done(house: House) -> None:
    before = keystore.read(house.home, "greeter")
    held = await asyncpg.connect(login_of(house, "greeter"))
    pid = await held.fetchval("SELECT pg_backend_pid()")
    os.kill(pid, signal.SIGSTOP)
    try:
        code, out, wrong = await house.butlers("keys", "rotate", "greeter", "--now")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (code, out, wrong.count("\n")) == (1, "", 1)
    assert "What was done to greeter stands, but 1 of its connections to the database did not end." in wrong
    assert f"Let a superuser end what is connected as `{house.name}_greeter`." in wrong
    after = keystore.read(house.home, "greeter")
    assert await counting(house) == [public_key(after.private_pem)]
    assert after.password != before.password
    assert await opens(login_of(house, "greeter"))
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await held.fetchval("SELECT 1")
    held.terminate()


async def test_where_the_database_is_away_nothing_is_replaced(house: House) -> None:
    before = keystore.read(house.home, "greeter")
    away = "postgresql://postgres:away@127.0.0.1:9/away"
    code, out, wrong = await house.butlers("keys", "rotate", "greeter", "--now", DATABASE_URL=away)
    assert (code, out, wrong.count("\n")) == (1, "", 1)
    assert "Start it, or correct DATABASE_URL." in wrong
    assert keystore.read(house.home, "greeter") == before
    assert await counting(house) == [public_key(before.private_pem)]
