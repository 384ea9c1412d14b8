"""By a login that may make no roles everything runs under that one: it works, and says what is then not promised."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest

from butlers import fleet as fleets
from butlers.setup import migrate
from butlers.setup.logins import ONE_ROLE
from shared.auth import keystore
from shared.errors import Misconfigured
from tests.rig import fresh
from tests.rig.bench import OWNER, Bench, House, free_block
from tests.rig.cluster import BUTLERS, write_fleet
from tests.rig.fleet import Fleet, Mode

_numbers = itertools.count(1)


async def as_superuser(bench: Bench, *statements: str) -> None:
    connection = await asyncpg.connect(bench.server.dsn)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def lone_house(bench: Bench) -> tuple[House, str]:
    """A fresh installation whose DATABASE_URL is a login that owns its database and may do nothing else; that URL."""
    name = f"lone{next(_numbers)}"
    await as_superuser(
        bench, f"CREATE ROLE \"{name}'s\" LOGIN PASSWORD 'w'", f'CREATE DATABASE {name} OWNER "{name}\'s"'
    )
    folder, server = bench.folder / name, urlsplit(bench.server.dsn).netloc.rpartition("@")[2]
    write_fleet(folder / "fleet", BUTLERS)
    base, claim = free_block()
    url = f"postgresql://{name}'s:w@{server}/{name}"
    env = {
        "DATABASE_URL": url,
        "BUTLERS_HOME": str(folder / "home"),
        "BUTLERS_FLEET": str(folder / "fleet"),
        "BUTLERS_PORT_BASE": str(base),
    }
    return House(name, bench.server.dsn_of(name), folder, base, claim, env, bench.forks), url


async def rows(house: House) -> list[str]:
    """What a second run of the same migration must not change."""
    connection = await asyncpg.connect(house.dsn)
    found = await connection.fetch(
        "SELECT relname || coalesce(relacl::text, '') FROM pg_class WHERE relnamespace::regnamespace::text = 'shared' "
        "UNION ALL SELECT proname || coalesce(proacl::text, '') || pg_get_functiondef(oid) FROM pg_proc "
        "WHERE pronamespace::regnamespace::text = 'shared' UNION ALL SELECT public_key FROM shared.keyring "
        "UNION ALL SELECT rolname FROM pg_roles WHERE rolname LIKE $1 ORDER BY 1",
        f"{house.name}%",
    )
    await connection.close()
    return [str(row[0]) for row in found]


@asynccontextmanager
async def running(house: House, mode: Mode) -> AsyncIterator[Fleet]:
    made = await Fleet.start(house, mode)
    try:
        yield made
    except BaseException:
        await made.abandon()
        raise
    await made.stop()


@pytest.mark.parametrize("mode", ["one", pytest.param("each", marks=pytest.mark.slow)])
async def test_everything_works_under_one_role_and_says_what_is_not_kept(bench: Bench, mode: Mode) -> None:
    house, _ = await lone_house(bench)
    assert (await house.butlers("migrate"))[0::2] == (0, "")
    before = await rows(house)
    assert (await house.butlers("migrate"))[0::2] == (0, "")
    assert await rows(house) == before
    assert not any(row.startswith(f"{house.name}_") for row in before), "a login was made"
    async with running(house, mode) as fleet:
        words, chat = fresh.words("alone"), fresh.chat()
        assert (await fleet.notify("health", channel="telegram", message=f"{words} to you"))["status"] == "ok"
        await fleet.outside.arrived(f"{words} to you", OWNER)
        anna = await fleet.contact("Anna", telegram=chat)
        asked = {"channel": "telegram", "contact_id": anna, "message": f"{words} to her"}
        told = await fleet.notify("health", **asked)
        assert told["status"] == "pending_approval"
        one = {"notification_id": told["notification_id"]}
        assert (await fleet.call("health", "notification_status", one))["status"] == "pending_approval"
        other = await fleet.call("greeter", "notification_status", one)
        assert other["status"] == "error", "one butler is told of another's message"
        code, _, wrong = await house.butlers("approvals", "approve", str(told["action_id"])[:13])
        assert (code, wrong) == (0, "")
        await fleet.outside.arrived(f"{words} to her", chat)
        assert (await fleet.notify("greeter", **asked))["status"] == "pending_approval"
        said = "".join(process.out.read_text() for process in fleet.started)
        assert said.count(ONE_ROLE) == len([name for name in fleet.names if name != "sandbox"])
        results = json.loads((await house.butlers("doctor", "--json"))[1])["results"]
        found = {one["text"]: one["result"] for one in results if one["what"] == "roles"}
        said = "Whoever connects may fill the disk with large objects, and with locks the room for those of all."
        assert found == {ONE_ROLE: "warning", said: "warning"}
        assert [one for one in results if one["result"] == "wrong"] == []


async def test_a_database_of_one_role_is_not_given_logins_later(bench: Bench) -> None:
    house, url = await lone_house(bench)
    entries = fleets.load(house.folder / "fleet")
    await migrate.migrate(house.settings, url, entries)
    with pytest.raises(Misconfigured, match=r"under the one role .* cannot be given logins later\. Use that"):
        await migrate.migrate(house.settings, house.dsn, entries)
    await as_superuser(bench, f'ALTER ROLE "{house.name}\'s" CREATEROLE')
    await migrate.migrate(house.settings, url, entries)
    assert keystore.read(house.home, "greeter").password == ""
    assert (await house.butlers("contacts", "list"))[0::2] == (0, "")
    house.close()


async def test_keys_without_a_password_open_no_database_that_has_logins(bench: Bench) -> None:
    house = await bench.house()
    for folder in (house.home / "keys").iterdir():
        (folder / "password").write_text("")
    told = (
        "butlers: The database is made for a login for each daemon, and the keys here are not. Run `butlers migrate`.\n"
    )
    for argv in (("run", "greeter"), ("contacts", "list")):
        code, out, wrong = await house.butlers(*argv)
        assert (code, out) == (1, "")
        assert wrong.endswith(told)
    assert (await house.butlers("migrate"))[0::2] == (0, "")
    assert (await house.butlers("contacts", "list"))[0::2] == (0, "")
    house.close()


async def test_a_login_that_may_give_the_groups_and_make_no_logins_is_told_what_is_missing(bench: Bench) -> None:
    house, url = await lone_house(bench)
    groups = ", ".join(f"butlers_group_{name}" for name in ("butler", "switchboard", "messenger", "console", "owner"))
    await as_superuser(bench, f'GRANT {groups} TO "{house.name}\'s" WITH ADMIN OPTION')
    with pytest.raises(Misconfigured, match=r"may give others the roles butlers_group_.* Give it CREATEROLE"):
        await migrate.migrate(house.settings, url, fleets.load(house.folder / "fleet"))
    await as_superuser(bench, f'ALTER ROLE "{house.name}\'s" CREATEROLE')
    for _ in range(2):
        await migrate.migrate(house.settings, url, fleets.load(house.folder / "fleet"))
    assert keystore.read(house.home, "greeter").password
    assert (await house.butlers("contacts", "list"))[0::2] == (0, "")
    assert ONE_ROLE not in (await house.butlers("doctor"))[1]
    house.close()
