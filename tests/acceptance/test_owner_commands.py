"""What the owner says on the command line holds in the running fleet: rules, the brake, and why."""

import json
import time

import aiohttp
import pytest

from tests.rig import fresh
from tests.rig.bench import OWNER
from tests.rig.fleet import Fleet

BRAKED = "The owner has put the brake on. It will be delivered when the brake is lifted; do not send it again."


async def said(fleet: Fleet, *argv: str) -> str:
    """What the command prints; it must end well."""
    code, out, wrong = await fleet.house.butlers(*argv)
    assert (code, wrong) == (0, ""), (argv, code, wrong)
    return out.strip()


async def refused(fleet: Fleet, *argv: str) -> str:
    """What the command complains of; it must fail in one line."""
    code, out, wrong = await fleet.house.butlers(*argv)
    assert (code, out, wrong.count("\n")) == (1, "", 1), (argv, code, out, wrong)
    return wrong


async def test_a_rule_lets_out_what_it_says_until_it_is_revoked(fleet: Fleet) -> None:
    words, chat = fresh.words("rule"), fresh.chat()
    anna = await fleet.contact("Anna", telegram=chat)
    asked = {"channel": "telegram", "contact_id": anna}
    limits = ("--max-uses", "1", "--expires", "30d")
    code, rule, _ = await fleet.house.butlers("rules", "add", "--contact-id", anna, "--butler", "health", *limits)
    assert code == 0
    rule = rule.strip()
    assert (await fleet.notify(message=f"{words} one", **asked))["status"] == "ok"
    assert (await fleet.notify(message=f"{words} two", **asked))["status"] == "pending_approval"
    tried = json.loads(await said(fleet, "rules", "test", rule[:12], "--json"))
    assert tried["counts"] == {"allow": 1, "park": 1, "deny": 0}
    assert [line["message"] for line in tried["lines"]] == [f"{words} one", f"{words} two"]
    wider = await said(fleet, "rules", "add", "--contact-id", anna)
    assert (await fleet.notify(message=f"{words} three", **asked))["status"] == "ok"
    assert await said(fleet, "rules", "revoke", wider) == "Revoked."
    assert (await fleet.notify(message=f"{words} four", **asked))["status"] == "pending_approval"
    [listed] = [one for one in json.loads(await said(fleet, "rules", "list", "--json"))["rules"] if one["id"] == rule]
    assert (listed["used"], listed["max_uses"], listed["active"], listed["contact"]) == (1, 1, True, "Anna")
    assert "already revoked" in await refused(fleet, "rules", "revoke", wider)


async def test_a_rule_that_forbids_is_told_as_forbidden(fleet: Fleet) -> None:
    address = fresh.address()
    rule = await said(fleet, "rules", "add", "--recipient", address, "--deny")
    answer = await fleet.notify(channel="email", message=fresh.words("never"), recipient=address)
    error = answer["error"]
    assert isinstance(error, dict)
    assert (answer["status"], error["class"]) == ("error", "forbidden")
    await said(fleet, "rules", "revoke", rule)


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("rules", "add"), "either a contact or a recipient"),
        (("rules", "add", "--recipient", "4242", "--butler", "nobody"), "Unknown butler `nobody`"),
        (("rules", "add", "--contact-id", "ffff0000"), "No contact matches"),
        (("rules", "add", "--recipient", "4242", "--deny", "--max-uses", "1"), "cannot have limits"),
        (("rules", "revoke", "nothing"), "No rule matches"),
        (("brake", "on", "--butler", "nobody"), "Unknown butler `nobody`"),
        (("brake", "on", "--channel", "sms"), "Unknown channel `sms`"),
        (("brake", "on", "--for", "soon"), "duration"),
        (("brake", "off", "--butler", "greeter", "--channel", "email"), "No such brake"),
        (("why", "ffffffff-ffff"), "No message has an id"),
    ],
)
async def test_what_makes_no_sense_is_refused_in_a_sentence(
    fleet: Fleet, argv: tuple[str, ...], complaint: str
) -> None:
    assert complaint in await refused(fleet, *argv)


@pytest.mark.every_mode
async def test_the_brake_delays_and_lifting_it_sends_at_once(fleet: Fleet) -> None:
    chat, words = fresh.chat(), ""
    spent: list[float] = []
    anna = await fleet.contact("Anna", telegram=chat)
    rule = await said(fleet, "rules", "add", "--contact-id", anna)
    await said(fleet, "brake", "on", "--contact", anna, "--for", "1h")
    [on] = json.loads(await said(fleet, "brake", "status", "--json"))["brakes"]
    assert (on["contact_id"], on["owner_too"]) == (anna, False)
    # Who waits in vain waits ten seconds each time, and a busy machine is slow now and then.
    while not spent or (spent[-1] >= 8 and len(spent) < 3):
        words, begun = fresh.words("brake"), time.monotonic()
        answer = await fleet.notify(channel="telegram", message=words, contact_id=anna)
        assert (answer["status"], answer["message"]) == ("queued", BRAKED)
        spent.append(time.monotonic() - begun)
    assert spent[-1] < 8
    assert not [entry for entry in await fleet.outside.journal() if entry.to == str(chat)]
    assert (
        await said(fleet, "brake", "off", "--contact", anna)
        == "Lifted. Waiting messages that no other brake holds are sent."
    )
    assert (await fleet.outside.arrived(words, chat)).text == words
    assert await said(fleet, "brake", "status") == "No brake is on."
    await said(fleet, "rules", "revoke", rule)


async def test_the_brake_is_seen_and_pulled_everywhere(fleet: Fleet) -> None:
    async def told(text: str, answer: str) -> None:
        after = len(await fleet.outside.journal())
        await fleet.outside.say(OWNER, text)
        await fleet.outside.until(
            lambda e: e.n > after and e.to == str(OWNER) and e.text.startswith(f"\u25a3 {answer}")
        )

    await told("/pause", "Paused.")
    [on] = json.loads(await said(fleet, "status", "--json"))["brakes"]
    assert (on["butler"], on["contact_id"], on["channel"]) == (None, None, None)
    seen = "messages to others wait since 2"
    assert f"\nThe brake is on: {seen}" in await said(fleet, "status")
    _, doctor, _ = await fleet.house.butlers("doctor")
    assert f"warning  brake: It is on: {seen}" in doctor
    await said(fleet, "brake", "on", "--butler", "greeter")
    which = await refused(fleet, "brake", "off")
    assert which.startswith(f"butlers: 2 brakes are on ({on['id'][:8]}: messages to others wait since 2")
    assert "messages from greeter to others wait since 2" in which
    assert "`butlers brake off ID`" in which
    assert (
        await said(fleet, "brake", "off", on["id"][:8])
        == "Lifted. Waiting messages that no other brake holds are sent."
    )
    await told("/resume", "Nothing is paused for everybody. Another brake is still on.")
    assert await said(fleet, "brake", "off") == "Lifted. Waiting messages that no other brake holds are sent."
    assert "No such brake" in await refused(fleet, "brake", "off", on["id"][:8])
    for _ in range(2):
        await said(fleet, "brake", "on")
    assert (
        await said(fleet, "brake", "off", "--all") == "2 lifted. Waiting messages that no other brake holds are sent."
    )
    assert "The brake" not in await said(fleet, "status")


async def test_a_message_explains_itself(fleet: Fleet) -> None:
    words, chat = fresh.words("why"), fresh.chat()
    answer = await fleet.notify(channel="telegram", message=words, recipient=str(chat))
    action = str(answer["action_id"])
    await said(fleet, "approvals", "approve", action)
    entry = await fleet.outside.arrived(words, chat)
    code, out, _ = await fleet.house.butlers("why", action[:13], "--json")
    assert code == 0
    told = json.loads(out)
    assert told["notification_id"] == answer["notification_id"]
    happened = [step["what"] for step in told["life"] if step["what"] != "route"]
    assert happened[:6] == ["asked", "admitted", "parked", "approved", "delivery", "marked"]
    text = await said(fleet, "why", str(answer["notification_id"]))
    assert words in text
    assert "via cli" in text
    assert entry.to == str(chat)


@pytest.mark.every_mode
async def test_the_owner_changes_the_text_and_only_that_is_asked_and_sent(fleet: Fleet) -> None:
    words, other, chat = fresh.words("asked"), fresh.words("in the owner's words"), fresh.chat()
    answer = await fleet.notify(channel="telegram", message=words, recipient=str(chat))
    action = str(answer["action_id"])
    first = await fleet.outside.card(action)
    assert "a different text" in await refused(fleet, "approvals", "edit", action, "--message", words)
    said_back = await said(fleet, "approvals", "edit", action[:13], "--message", other)
    assert f"To unknown ({chat}): " in said_back
    assert said_back.endswith("\nSaved. Nothing has been sent yet; you are asked to approve the new text.")
    [second, *_] = await fleet.outside.until(lambda e: e.method == "sendMessage" and other in e.text)
    assert "Approve" in str(second.payload)
    shown = json.loads(await said(fleet, "approvals", "show", action, "--json"))
    assert (shown["revision"], shown["tool_args"]["message"]) == (2, other)
    printed = await said(fleet, "approvals", "show", action)
    assert f"an unknown recipient on Telegram ({chat})\n" in printed
    assert f"\n> {other}\n" in printed
    await fleet.outside.press(first, "Approve")
    asked = {"notification_id": answer["notification_id"]}
    assert await fleet.call("health", "notification_status", asked) == answer
    assert f"\nTo unknown ({chat}): {len(other)} characters, " in await said(fleet, "approvals", "approve", action)
    assert (await fleet.outside.arrived(other, chat)).text == other
    settled = await fleet.call("health", "notification_status", {**asked, "wait_seconds": 20})
    assert (settled["status"], settled["note"]) == ("ok", f"The owner edited the text: {other}")
    assert [entry.text for entry in await fleet.outside.journal() if entry.to == str(chat)] == [other]
    assert "Already approved and sent (" in await refused(fleet, "approvals", "edit", action, "--message", "late")
    told = await said(fleet, "why", action)
    assert f'edited the text via cli. New text: "{other}"' in told
    assert told.count("approved it via cli") == 1


async def test_a_fresh_link_signs_in_to_a_console_that_runs(fleet: Fleet) -> None:
    link = await said(fleet, "sign-in")
    other = json.loads(await said(fleet, "sign-in", "--json"))
    assert other["seconds"] == 600
    assert other["link"] != link
    url = fleet.url("console")
    async with aiohttp.ClientSession() as browser:
        for where in (link, other["link"]):
            assert where.startswith(f"http://127.0.0.1:{fleet.house.base + 2}/sign-in?code=")
            form = {"code": where.rpartition("=")[2]}
            for expected in (303, 403):
                sent = browser.post(f"{url}/sign-in", data=form, headers={"Origin": url}, allow_redirects=False)
                async with sent as answer:
                    assert answer.status == expected
                    await answer.read()
