"""The notify contract, scenario by scenario: who is meant, who may be told, and how it gets there."""

# ruff: noqa: D400  a test's docstring is the contract's own heading, to the letter

from uuid import UUID, uuid4

from shared.rpc import Answer
from tests.contract.asking import action, actions_of, contact, envelope, notification, part, rule
from tests.rig import fresh
from tests.rig.bench import OWNER, OWNER_EMAIL
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

ROUTES = "SELECT * FROM switchboard.routes WHERE notification_id = $1"
PREFER = "UPDATE shared.contacts SET preferred_channel = $1 WHERE 'owner' = ANY (roles)"
USES = "SELECT count(*) FROM shared.rule_uses WHERE rule_id = $1 AND notification_id = $2"


async def delivered(fleet: Fleet, answer: Answer, said: str, to: object) -> None:
    """It was delivered, by the provider's own receipt, once, to this address."""
    assert answer["status"] == "ok", answer
    entry = await fleet.outside.arrived(said, str(to))
    assert part(answer, "delivery")["delivery_id"] == entry.provider_id


async def waits(fleet: Fleet, answer: Answer, said: str) -> None:
    """It is a pending action, its card is there, and nothing has left."""
    assert answer["status"] == "pending_approval", answer
    row = await action(fleet, answer)
    assert (row["tool_name"], row["status"], row["tool_args"]["message"]) == ("notify", "pending", said)
    card = await fleet.outside.card(str(answer["action_id"]))
    assert said in card.text
    assert not [e for e in await fleet.outside.having(said) if e.to != str(OWNER)]


async def test_contact_based_recipient_resolution(fleet: Fleet) -> None:
    """Contact-based recipient resolution"""
    chat, said = fresh.chat(), fresh.words("Your dental appointment is tomorrow")
    anna = await contact(fleet, "Anna", ("telegram", chat, True), ("email", fresh.address(), True))
    await rule(fleet, contact_id=anna)
    answer = await fleet.notify(channel="telegram", message=said, contact_id=anna)
    await delivered(fleet, answer, said, chat)
    # contact_id comes before recipient.
    both = await fleet.notify(channel="telegram", message=f"{said}!", contact_id=anna, recipient=str(OWNER))
    await delivered(fleet, both, f"{said}!", chat)
    assert both["note"] == "contact_id was used; recipient was ignored."


async def test_contact_based_resolution_with_multiple_entries(fleet: Fleet) -> None:
    """Contact-based resolution with multiple entries"""
    first, second, said = fresh.address(), fresh.address(), fresh.words("primary")
    with_primary = await contact(fleet, "Bea", ("email", first, False), ("email", second, True))
    await rule(fleet, contact_id=with_primary)
    await delivered(fleet, await fleet.notify(channel="email", message=said, contact_id=with_primary), said, second)
    oldest, later, said = fresh.address(), fresh.address(), fresh.words("first")
    without_primary = await contact(
        fleet, "Cleo", ("telegram", fresh.chat(), True), ("email", oldest, False), ("email", later, False)
    )
    await rule(fleet, contact_id=without_primary)
    await delivered(fleet, await fleet.notify(channel="email", message=said, contact_id=without_primary), said, oldest)


async def test_omitted_contact_id_and_recipient_defaults_to_system_owner(fleet: Fleet) -> None:
    """Omitted contact_id and recipient defaults to system owner"""
    for channel, address in (("telegram", OWNER), ("email", OWNER_EMAIL)):
        said = fresh.words("Alert")
        answer = await fleet.notify(channel=channel, message=said)
        await delivered(fleet, answer, said, address)
        row = await notification(fleet, answer)
        owner = await fleet.value("SELECT id FROM shared.contacts WHERE 'owner' = ANY (roles)")
        entry = await fleet.value(
            "SELECT id FROM shared.contact_info WHERE contact_id = $1 AND type = $2 AND value = $3",
            owner,
            channel,
            str(address),
        )
        assert (row["contact_id"], row["contact_info_id"]) == (owner, entry)


async def test_explicit_recipient_string_provided(fleet: Fleet) -> None:
    """Explicit recipient string provided"""
    to, said = fresh.address(), fresh.words("Report")
    await rule(fleet, recipient=to)
    answer = await fleet.notify(channel="email", message=said, recipient=to)
    await delivered(fleet, answer, said, to)
    assert part(await envelope(fleet, answer), "delivery")["recipient"] == to
    assert {(r["target_butler"], r["status"]) for r in await routes(fleet, answer)} == {("messenger", "ok")}
    row = await notification(fleet, answer)
    assert (row["whom"], row["contact_id"]) == (f"recipient:{to}", None)


async def routes(fleet: Fleet, answer: Answer) -> list[dict[str, object]]:
    """What the Switchboard noted of this notification's way, once it has; what was slow is swept there once more."""
    rows = await eventually(lambda: fleet.sql(ROUTES, UUID(str(answer["notification_id"]))))
    return [dict(row) for row in rows]


async def test_contact_missing_telegram_identifier(fleet: Fleet) -> None:
    """Contact missing Telegram identifier"""
    said = fresh.words("Reminder")
    dora = await contact(fleet, "Dora", ("email", fresh.address(), True))
    answer = await fleet.notify(channel="telegram", message=said, contact_id=dora)
    assert answer == {
        "status": "pending_missing_identifier",
        "action_id": answer.get("action_id"),
        "message": "Cannot deliver telegram notification -- no telegram identifier on file.",
    }
    row = await action(fleet, answer)
    assert (row["tool_name"], row["status"], row["origin_butler"]) == ("notify", "pending", "health")
    assert "no telegram identifier on file for Dora" in row["agent_summary"]
    kept = {"channel": "telegram", "message": said, "contact_id": dora}
    assert {name: row["tool_args"].get(name) for name in kept} == kept
    assert not [e for e in await fleet.outside.having(said) if e.to != str(OWNER)]


async def test_owner_notified_of_missing_identifier(fleet: Fleet) -> None:
    """Owner notified of missing identifier"""
    before = await fleet.value("SELECT preferred_channel FROM shared.contacts WHERE 'owner' = ANY (roles)")
    try:
        for preferred, address in (("telegram", str(OWNER)), ("email", OWNER_EMAIL)):
            await fleet.sql(PREFER, preferred)
            said, name = fresh.words("unreachable"), fresh.words("Emil")
            emil = await contact(fleet, name, ("email", fresh.address(), True))
            answer = await fleet.notify(channel="telegram", message=said, contact_id=emil)
            assert answer["status"] == "pending_missing_identifier"
            arrived = await fleet.outside.until(lambda e, to=address, it=said: e.to == to and it in e.text)  # type: ignore[misc]  # bound now
            told = arrived[0].text
            assert name in told
            assert "on Telegram (no address on file)" in told
            assert f"/contacts/{emil}" in told
            assert "http" in told
    finally:
        await fleet.sql(PREFER, before)


async def test_notification_to_owner_bypasses_approval(fleet: Fleet) -> None:
    """Notification to owner bypasses approval"""
    said = fresh.words("Alert")
    answer = await fleet.notify(channel="telegram", message=said)
    await delivered(fleet, answer, said, OWNER)
    assert await actions_of(fleet, answer) == 0


async def test_notification_to_non_owner_requires_approval(fleet: Fleet) -> None:
    """Notification to non-owner requires approval"""
    said, chat = fresh.words("Reminder"), fresh.chat()
    fritz = await contact(fleet, "Fritz", ("telegram", chat, True))
    other = await contact(fleet, "Greta", ("telegram", fresh.chat(), True))
    await rule(fleet, contact_id=other)
    answer = await fleet.notify(channel="telegram", message=said, contact_id=fritz)
    await waits(fleet, answer, said)
    assert "No rule allows it." in (await action(fleet, answer))["agent_summary"]
    card = await fleet.outside.card(str(answer["action_id"]))
    await fleet.outside.press(card, "Approve")
    await fleet.outside.arrived(said, chat)
    # What was parked goes out whole.
    said, to = fresh.words("Minutes"), fresh.address()
    answer = await fleet.notify(channel="email", message=said, subject="Of Monday", recipient=to)
    await waits(fleet, answer, said)
    await fleet.outside.press(await fleet.outside.card(str(answer["action_id"])), "Approve")
    assert (await fleet.outside.arrived(said, to)).mail["Subject"] == "Of Monday"


async def test_standing_rule_auto_approves_non_owner_notification(fleet: Fleet) -> None:
    """Standing rule auto-approves non-owner notification"""
    said, by_address, chat = fresh.words("Hi"), fresh.words("Hi by address"), fresh.chat()
    hanna = await contact(fleet, "Hanna", ("telegram", chat, True))
    rule_id = await rule(fleet, contact_id=hanna)
    for words, whom in ((said, {"contact_id": hanna}), (by_address, {"recipient": str(chat)})):
        answer = await fleet.notify(channel="telegram", message=words, **whom)
        await delivered(fleet, answer, words, chat)
        assert await actions_of(fleet, answer) == 0
        assert await fleet.value(USES, UUID(rule_id), UUID(str(answer["notification_id"]))) == 1


async def test_unresolvable_target_requires_approval(fleet: Fleet) -> None:
    """Unresolvable target requires approval"""
    said = fresh.words("Hi")
    answer = await fleet.notify(channel="telegram", message=said, recipient="unknown@example.com")
    await waits(fleet, answer, said)
    assert (await notification(fleet, answer))["contact_id"] is None
    said = fresh.words("Hi by the same channel")
    answer = await fleet.notify(channel="email", message=said, recipient="unknown@example.com")
    await waits(fleet, answer, said)
    assert (await notification(fleet, answer))["contact_id"] is None


async def test_notify_routed_through_switchboard(fleet: Fleet) -> None:
    """Notify routed through Switchboard"""
    said = fresh.words("routed")
    answer = await fleet.notify("health", channel="telegram", message=said)
    await delivered(fleet, answer, said, OWNER)
    noted = ("origin_butler", "target_butler", "tool", "status")
    ways = {tuple(route[name] for name in noted) for route in await routes(fleet, answer)}
    assert ways == {("health", "messenger", "route.execute", "ok")}


async def test_successful_delivery_response(fleet: Fleet) -> None:
    """Successful delivery response"""
    for channel, address in (("telegram", str(OWNER)), ("email", OWNER_EMAIL)):
        said = fresh.words("success")
        answer = await fleet.notify(channel=channel, message=said)
        entry = await fleet.outside.arrived(said, address)
        assert answer == {
            "schema_version": "notify_response.v1",
            "status": "ok",
            "notification_id": answer["notification_id"],
            "delivery": {"channel": channel, "delivery_id": entry.provider_id, "sandbox": True},
        }


async def test_failed_delivery_response(fleet: Fleet) -> None:
    """Failed delivery response"""
    said = fresh.words("failure")
    await fleet.outside.fault("telegram", "sendMessage", "403", match=said, times=1)
    answer = await fleet.notify(channel="telegram", message=said)
    assert answer["status"] == "error"
    assert "delivery" not in answer
    error = part(answer, "error")
    assert (error["class"], error["retryable"]) == ("provider_rejected", False)
    assert isinstance(error["message"], str)
    assert len(error["message"]) > len("Forbidden")
    assert not await fleet.outside.having(said)


async def test_origin_butler_set_automatically(fleet: Fleet) -> None:
    """Origin butler set automatically"""
    for butler in ("health", "greeter"):
        said = fresh.words("origin")
        answer = await fleet.notify(butler, channel="telegram", message=said)
        assert (await envelope(fleet, answer))["origin_butler"] == butler
    said = fresh.words("another origin")
    answer = await fleet.notify("health", channel="telegram", message=said, origin_butler="greeter")
    assert answer["status"] == "error"
    assert not await fleet.outside.having(said)


def carried(said: str, request_id: str, **admitted: object) -> Answer:
    """route.v1 around a notify.v1 envelope of the contract's fields."""
    request = {
        "schema_version": "notify.v1",
        "origin_butler": "health",
        "delivery": {"intent": "send", "channel": "telegram", "message": said},
        "request_context": {"request_id": request_id},
        **admitted,
    }
    lineage = {
        "request_id": str(uuid4()),
        "source_channel": "mcp",
        "source_endpoint_identity": "switchboard",
        "source_sender_identity": "health",
    }
    return {
        "schema_version": "route.v1",
        "request_context": lineage,
        "target": {"butler": "messenger", "tool": "route.execute"},
        "input": {"context": {"notify_request": request}},
    }


async def test_duplicate_notify_tolerated(fleet: Fleet) -> None:
    """Duplicate notify tolerated"""
    said = fresh.words("duplicate")
    told = []
    for _ in range(2):  # each time a route of its own, around the same envelope
        answer = await fleet.hop("health", "switchboard", "route", carried(said, f"request of {said}"))
        told.append(part(part(answer, "result"), "notify_response"))
    assert [one["status"] for one in told] == ["ok", "ok"]
    assert told[1]["delivery"] == told[0]["delivery"]
    entry = await fleet.outside.arrived(said, OWNER)
    assert part(told[0], "delivery")["delivery_id"] == entry.provider_id
    brought = carried(said, f"request of {said}", notification_id=told[0]["notification_id"])
    answer = await fleet.hop("switchboard", "messenger", "route.execute", brought)
    assert part(part(answer, "result"), "notify_response")["delivery"] == told[0]["delivery"]
    said = fresh.words("duplicate call")
    asked = {"channel": "telegram", "message": said, "request_context": {"request_id": said}}
    first, again = await fleet.notify(**asked), await fleet.notify(**asked)
    assert again == {**first, "duplicate": True}
    await delivered(fleet, first, said, OWNER)
