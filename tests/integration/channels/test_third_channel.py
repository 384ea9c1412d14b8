"""A third channel is two objects, a line for each, and a row: it then goes the whole way of a message."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
import pytest_asyncio

from messenger import daemon
from messenger.channels.base import Receipt, SendFailed, StillHeld, too_late, unconditionally
from shared.channels import CHANNELS
from shared.channels.base import AddressForm, ChannelSpec, Limit, Message, ThreadForm, Wire
from shared.storage import contacts
from tests.integration.house import House, opened
from tests.integration.signed_in import fields, page, plain, signed_in
from tests.rig.cluster import Cluster
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

BRAKE = "INSERT INTO shared.brakes (channel, until) VALUES ($1, clock_timestamp())"
PREFER = "UPDATE shared.contacts SET preferred_channel = $1 WHERE 'owner' = ANY (roles)"
WAITS = "SELECT 1 FROM messenger.rate_limits WHERE key = $1 AND free_at > clock_timestamp() + interval '59 minutes'"


def rendered(message: Message) -> tuple[Wire, ...]:
    return (Wire(verb="WRITE", to=message.address, body=message.text.encode()),)


def limits(address: str, _origin: str) -> Mapping[str, Limit]:
    return {f"file:{address}": Limit(1, timedelta(hours=1))}


SPEC = ChannelSpec(
    name="file",
    label="file",
    via="by file",
    provider="The disk",
    sources=frozenset({"file"}),
    address=AddressForm(
        claims=lambda token: token.startswith("file:"),
        parse=lambda token: token,
        is_private=lambda _address: True,
        forms=("a file",),
        ask="one file (file:name)",
        private="a file",
        missing="a file",
        field="File of a person",
    ),
    thread=ThreadForm(spellings=lambda thread: (thread,), words="the file {thread}"),
    render=rendered,
    limits=limits,
    sandbox_owner="file:owner",
)


@dataclass(frozen=True, slots=True)
class Page:
    """A file that is not written yet."""

    path: Path
    body: bytes

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        if not still_held():
            return too_late()
        self.path.write_bytes(self.body)
        return Receipt(self.path.name)

    async def abandon(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Files:
    """The sender: a message is a file of its address."""

    folder: Path
    name: str = "file"

    async def prepare(self, wire: Wire) -> Page | SendFailed:
        return Page(self.folder / wire.to.removeprefix("file:"), wire.body)

    async def probe(self) -> SendFailed | None:
        return None

    async def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(cluster: Cluster, folder: Path) -> AsyncIterator[House]:
    """A house that sends by file too, and counts what it sends."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(CHANNELS, "file", SPEC)
        patched.setitem(daemon.SENDERS, "file", lambda _set_up: Files(folder))
        async with opened(cluster, BUTLERS_RATE_LIMITS="on") as made:
            yield made


async def asked(house: House, words: str, to: str) -> str:
    """The notification of a question whose card the owner has."""
    answer = await house.notify(channel="file", message=words, recipient=to)
    assert answer["status"] == "pending_approval", answer
    return str(answer["notification_id"])


async def pressed(house: House, words: str) -> None:
    """Approve on the card that shows these words."""

    async def card() -> Mapping[str, object] | None:
        return next(iter(house.cards(words)), None)

    found = await eventually(card)
    assert "wants to message an unknown recipient" in str(found)
    await house.press(found)


async def test_it_leaves_by_the_owners_yes_and_then_within_its_limits(house: House, folder: Path) -> None:
    first, second = f"first {uuid4()}", f"second {uuid4()}"
    one = await asked(house, first, "file:anna")
    await pressed(house, first)
    await house.settled(one, "ok")
    assert (folder / "anna").read_text() == first
    two = await asked(house, second, "file:anna")
    await pressed(house, second)

    async def put_off() -> object:
        return await house.sql.fetchval(WAITS, "file:file:anna")

    await eventually(put_off)
    await house.settled(two, "queued")
    assert (folder / "anna").read_text() == first


async def test_the_owner_is_told_at_once_and_whose_words_they_are(house: House, folder: Path) -> None:
    owner = await contacts.owner(house.sql)
    assert owner is not None
    await contacts.remove_address(house.sql, owner["id"], "file", SPEC.sandbox_owner)
    await contacts.add_address(house.sql, owner["id"], "file", "file:mine", primary=True)
    await house.sql.execute(PREFER, "file")
    answer = await house.notify(channel="file", message="Water the plants.")
    assert answer["status"] == "ok", answer
    assert (folder / "mine").read_text() == "greeter:\n\nWater the plants."


async def test_the_console_takes_its_addresses_and_shows_what_went(house: House, folder: Path) -> None:
    words, contact_id = f"shown {uuid4()}", await house.contact("Rosa")
    answer = await house.notify(channel="file", message=words, contact_id=contact_id)
    assert answer["status"] == "pending_missing_identifier", answer
    async with signed_in(house) as console:
        form = await page(console, f"/contacts/{contact_id}")
        assert "Waiting for a file" in plain(form)
        assert "File of a person" in plain(form)
        sent = await console.post(f"/contacts/{contact_id}", **{**fields(form), "value": "file:rosa", "do": "send"})
        assert sent.status == 303, await sent.text()

        async def written() -> bool:
            return (folder / "rosa").exists()

        await eventually(written)
        assert (folder / "rosa").read_text() == words
        assert "file:rosa" in plain(await page(console, f"/contacts/{contact_id}"))
        assert '<option value="file">' in await page(console, "/rules")
        assert "file:anna" in plain(await page(console, "/deliveries"))


async def test_what_names_a_channel_names_a_row(house: House) -> None:
    await house.sql.execute(BRAKE, "file")
    for statement in (BRAKE, PREFER):
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await house.sql.execute(statement, "fax")
