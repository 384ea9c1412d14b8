"""An agent writes to a person by name: the whole name of exactly one contact, and never in the place of an address."""

from uuid import uuid4

import pytest

from shared.rpc import Answer
from tests.integration.house import House
from tests.integration.workers import new_chat

pytestmark = pytest.mark.asyncio(loop_scope="module")
MEANT = "SELECT whom, contact_id::text FROM shared.notifications WHERE id = $1"


async def found(house: House, search: str) -> list[dict[str, object]]:
    contacts = (await asked(house, search))["contacts"]
    assert isinstance(contacts, list)
    return contacts


async def asked(house: House, search: str) -> Answer:
    return await house.assembly.local["greeter"].call(house.tokens["greeter"], "contacts", {"search": search})


async def test_a_name_is_the_contact_whatever_its_case_and_accents(house: House) -> None:
    anna, message = await house.contact("Anna Müller-Æ", telegram=new_chat()), f"by name {uuid4()}"
    by_name = await house.notify(message=message, recipient="  anna MULLER-æ ")
    assert by_name["status"] == "pending_approval"
    assert by_name["note"] == f"The contact is Anna Müller-Æ ({anna})."
    by_id = await house.notify(message=message, contact_id=anna)
    assert by_id["action_id"] == by_name["action_id"], "by name and by id is one question"


async def test_a_name_without_an_entry_on_the_channel_is_the_missing_identifier(house: House) -> None:
    await house.contact("Bela Without", telegram=new_chat())
    answer = await house.notify(channel="email", message=f"mail {uuid4()}", recipient="Bela Without")
    assert answer["status"] == "pending_missing_identifier"


async def test_two_of_one_name_are_told_apart_and_nobody_is_told(house: House) -> None:
    first, second = await house.contact("Carla", telegram=new_chat()), await house.contact("CARLA", email="c@x.test")
    message = f"two {uuid4()}"
    answer = await house.notify(message=message, recipient="Carla")
    assert answer == {
        "status": "error",
        "error": "Several contacts are named 'Carla'. "
        f"Give one of them as contact_id: {first} (telegram); {second} (email).",
    }
    assert house.sent(message) == []


@pytest.mark.parametrize("name", ["Nobody At All", "nobody@", "@", "0049 30 12345", "Carl\u202ea", "x" * 400])
async def test_what_is_neither_name_nor_address_goes_to_nobody(house: House, name: str) -> None:
    message = f"nobody {uuid4()}"
    answer = await house.notify(message=message, recipient=name)
    assert answer["status"] == "error"
    assert "owner" not in str(answer["error"]), "no error advises to tell the owner instead"
    assert house.sent(message) == []


async def test_an_address_is_never_looked_up_as_a_name(house: House) -> None:
    chat, message = new_chat(), f"address {uuid4()}"
    bearer = await house.contact(chat, telegram=new_chat())
    answer = await house.notify(message=message, recipient=chat)
    row = await house.row(
        "SELECT whom, contact_id::text FROM shared.notifications WHERE id = $1", answer["notification_id"]
    )
    assert (row["whom"], row["contact_id"]) == (f"recipient:{chat}", None), bearer


async def test_a_name_in_the_place_of_an_id_is_told_where_it_belongs(house: House) -> None:
    answer = await house.notify(message="x", contact_id="Anna")
    assert "`recipient`" in str(answer["error"])


async def test_contacts_are_found_by_a_part_of_the_name_and_without_an_address(house: House) -> None:
    chat = new_chat()
    dora = await house.contact("Dóra %_ Kovács", telegram=chat, email="dora@x.test")
    assert await found(house, "KOVACS") == [
        {"contact_id": dora, "name": "Dóra %_ Kovács", "is_owner": False, "channels": ["email", "telegram"]}
    ]
    assert await found(house, "a%_k") == []
    assert [one["is_owner"] for one in await found(house, "") if one["is_owner"]] == [True]
    assert "error" in await asked(house, "x" * 201)
