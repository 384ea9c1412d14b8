"""`butlers doctor` finds what is wrong with an installation, says what to do, and that mends it."""

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.auth.keypairs import generate_key
from tests.rig.bench import Bench
from tests.rig.fleet import Fleet
from tests.rig.gate import by_port
from tests.rig.waiting import LONGEST

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


OLD_LINE = """
INSERT INTO shared.approval_events (event_type, actor, at)
VALUES ('told', 'messenger', clock_timestamp() - interval '11 minutes')
"""


PAUSE = """
INSERT INTO messenger.circuit_breakers (channel, reason, detail, since, next_probe_at)
VALUES ('email', 'unauthorized', '', clock_timestamp(), clock_timestamp() + interval '4 minutes')
"""
NO_PAUSE = "DELETE FROM messenger.circuit_breakers"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(bench: Bench) -> AsyncIterator[Fleet]:
    made = await Fleet.start(await bench.house(), "each")
    yield made
    await made.stop()


async def wrong(patient: Fleet, **env: str) -> list[tuple[str, str]]:
    """What the doctor calls wrong, and its remedies; the exit code must agree."""
    code, out, said = await patient.house.butlers("doctor", "--json", **env)
    found = [one for one in json.loads(out)["results"] if one["result"] == "wrong"]
    assert (code, said) == (1 if found else 0, "")
    return [(one["text"], one["remedy"]) for one in found]


async def test_a_healthy_house_has_nothing_wrong_and_says_that_it_is_on_the_sandbox(patient: Fleet) -> None:
    assert await wrong(patient) == []
    code, out, _ = await patient.house.butlers("doctor")
    assert code == 0
    assert (
        "warning  telegram: Messages go to the sandbox and reach nobody. Set BUTLERS_TELEGRAM_TOKEN to go live." in out
    )
    assert "ok       daemon: greeter is ready." in out


async def test_a_mailbox_from_which_no_mail_counts_is_named(patient: Fleet) -> None:
    told = "warning  email: No mail counts as yours: BUTLERS_MAIL_AUTHSERV_ID is not set."
    mailbox = {"BUTLERS_IMAP_URL": "imaps://me:secret@mail.example.org"}
    assert told in (await patient.house.butlers("doctor", **mailbox))[1]
    named = {**mailbox, "BUTLERS_MAIL_AUTHSERV_ID": "mail.example.org"}
    assert told not in (await patient.house.butlers("doctor", **named))[1]


async def test_a_daemon_that_is_not_there_is_named(patient: Fleet) -> None:
    await patient.kill("greeter", signal.SIGTERM)
    # Its goodbye may find nobody who listens in time; then it is its silence that tells, after half a minute.
    async with asyncio.timeout(3 * LONGEST):
        while not (found := await wrong(patient)):
            await asyncio.sleep(0.5)
    assert found == [("greeter is not ready.", "Run `butlers up`, or `butlers run greeter`.")]
    await patient.restart("greeter")
    assert await wrong(patient) == []


async def test_what_a_daemon_remarks_is_named(patient: Fleet) -> None:
    await patient.sql(PAUSE)
    try:
        async with asyncio.timeout(2 * LONGEST):
            while not (found := await wrong(patient)):
                await asyncio.sleep(0.5)
    finally:
        await patient.sql(NO_PAUSE)
    [(text, _)] = found
    assert "Paused since" in text
    async with asyncio.timeout(2 * LONGEST):
        while await wrong(patient):
            await asyncio.sleep(0.5)


async def test_keys_that_others_may_read_are_named(patient: Fleet) -> None:
    folder = patient.house.home / "keys" / "greeter"
    (folder / "key.pem").chmod(0o644)
    assert await wrong(patient) == [(f"Other users can read {folder / 'key.pem'}.", f"Run `chmod -R go= {folder}`.")]
    (folder / "key.pem").chmod(0o600)
    house = patient.house.home
    before = house.stat().st_mode & 0o777
    house.chmod(0o777)
    assert await wrong(patient) == [(f"Other users can write to {house}.", f"Run `chmod go-w {house}`.")]
    house.chmod(before)


async def test_a_key_that_the_database_does_not_know_is_named(patient: Fleet) -> None:
    path = patient.house.home / "keys" / "health" / "key.pem"
    kept = path.read_bytes()
    path.write_bytes(generate_key()[0])
    [(text, remedy)] = await wrong(patient)
    assert text.startswith("The database does not know the key of health stored here")
    assert remedy == "Run `butlers migrate`, or correct BUTLERS_HOME."
    path.write_bytes(kept)


async def test_an_owner_who_cannot_be_reached_is_named(patient: Fleet) -> None:
    live = {"BUTLERS_SMTP_URL": "smtp://127.0.0.1:9", "BUTLERS_EMAIL_FROM": "butlers@example.org"}
    [(text, _)] = await wrong(patient, **live)
    assert text == "The owner's email address is the invented one of the sandbox."
    await patient.sql("DELETE FROM shared.contact_info WHERE type = 'email'")
    [(text, remedy)] = await wrong(patient)
    assert text == "Owner has no email address."
    await patient.house.butlers(*remedy.split("`")[1].replace("VALUE", "owner@sandbox.test").split()[1:])
    assert await wrong(patient) == []


async def test_an_owner_with_live_mail_needs_no_address_in_the_sandbox(patient: Fleet) -> None:
    live = {"BUTLERS_SMTP_URL": "smtp://127.0.0.1:9", "BUTLERS_EMAIL_FROM": "butlers@example.org"}
    rows = await patient.sql("DELETE FROM shared.contact_info WHERE type = 'telegram' RETURNING contact_id, value")
    await patient.sql("UPDATE shared.contact_info SET value = 'olga@example.org' WHERE type = 'email'")
    try:
        assert await wrong(patient, **live) == []
    finally:
        await patient.sql("UPDATE shared.contact_info SET value = 'owner@sandbox.test' WHERE type = 'email'")
        for row in rows:
            text = "INSERT INTO shared.contact_info (contact_id, type, value) VALUES ($1, 'telegram', $2)"
            await patient.sql(text, row["contact_id"], row["value"])


async def test_an_audit_that_is_not_sealed_is_named(patient: Fleet) -> None:
    [messenger] = patient.running["messenger"]
    messenger.send(signal.SIGSTOP)
    try:
        await patient.sql(OLD_LINE)
        [(text, remedy)] = await wrong(patient)
    finally:
        messenger.send(signal.SIGCONT)
    assert text.startswith("1 lines of the log have been unsealed since ")
    assert remedy == "If this lasts two minutes, check the Messenger's log and restart it."


async def test_where_the_owners_key_lies_alone_the_channels_are_as_the_messenger_says(
    patient: Fleet, tmp_path: Path
) -> None:
    shutil.copytree(patient.house.home / "keys" / "owner", tmp_path / "keys" / "owner")
    await patient.sql("UPDATE shared.channels SET realm = 'butlers@example.org' WHERE channel = 'email'")
    _, out, _ = await patient.house.butlers("--home", str(tmp_path), "doctor")
    await patient.sql("UPDATE shared.channels SET realm = 'sandbox' WHERE channel = 'email'")
    assert "ok       email: Live, as butlers@example.org." in out
    assert f"ok       keys: Checked 1 in {tmp_path / 'keys'}." in out
    assert "There are no keys" not in out


async def test_a_database_that_is_away_is_named(patient: Fleet) -> None:
    assert patient.house.settings.database_url is not None
    dsn = patient.house.settings.database_url.reveal()
    away = by_port(dsn, 9)
    [(text, remedy)] = await wrong(patient, DATABASE_URL=away)
    assert "cannot be reached: Connection refused" in text
    assert remedy == "Start it, or correct DATABASE_URL."
