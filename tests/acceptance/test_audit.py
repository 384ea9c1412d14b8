"""`butlers audit` beside a running fleet: whether it is whole, its lines, and a copy that is checked elsewhere."""

import asyncio
import json
import sys
from pathlib import Path

from tests.acceptance.test_owner_commands import refused, said
from tests.rig import fresh
from tests.rig.cluster import ROOT
from tests.rig.fleet import Fleet
from tests.rig.waiting import eventually

UNKNOWN = "ab" * 32


async def test_the_audit_of_a_running_fleet_is_whole_and_its_tail_is_named(fleet: Fleet) -> None:
    answer = await fleet.notify(channel="telegram", message=fresh.words("audit"), recipient=str(fresh.chat()))
    assert answer["status"] == "pending_approval"
    assert (await said(fleet, "audit", "verify")).startswith("The audit log is intact: ")
    report = json.loads(await said(fleet, "audit", "verify", "--json"))
    assert (report["whole"], report["flaws"], report["keys"]) == (True, [], "home")
    assert report["lines"] + report["unsealed"]["lines"] >= 1
    if report["head"]:
        await said(fleet, "audit", "verify", "--head", report["head"]["hash"])


async def test_a_head_that_the_chain_does_not_contain_ends_with_one(fleet: Fleet) -> None:
    code, out, wrong = await fleet.house.butlers("audit", "verify", "--head", UNKNOWN)
    assert (code, wrong) == (1, "")
    assert out.splitlines()[0] == (
        f"No seal has the hash {UNKNOWN}: seals were removed together with the lines they covered."
    )
    assert "The audit log is broken" in out
    code, out, _ = await fleet.house.butlers("audit", "verify", "--json", "--head", UNKNOWN)
    assert (code, json.loads(out)["whole"]) == (1, False)
    assert "not the hash of a seal" in await refused(fleet, "audit", "verify", "--head", "abc")


async def test_what_happened_to_one_message_is_listed_and_shown_line_by_line(fleet: Fleet) -> None:
    answer = await fleet.notify(channel="telegram", message=fresh.words("listed"), recipient=str(fresh.chat()))
    about = str(answer["action_id"])
    (line,) = json.loads(await said(fleet, "audit", "list", "--about", about[:13], "--json"))["lines"]
    assert (line["event_type"], line["action_id"], line["at"][-1]) == ("parked", about, "Z")
    assert about[:8] in await said(fleet, "audit", "list", "--event", "parked", "-n", "10000")
    assert f"action_id        {about}" in await said(fleet, "audit", "show", line["seq"])
    assert "The log has no line 0." in await refused(fleet, "audit", "show", "0")


async def checked(*arguments: str) -> tuple[int, str]:
    """What the example says of an exported audit."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples" / "verify_audit.py"), *arguments, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await program.communicate()
    return program.returncode or 0, told.decode()


async def test_an_exported_audit_is_checked_without_the_house(fleet: Fleet, tmp_path: Path) -> None:
    await fleet.notify(channel="telegram", message=fresh.words("kept elsewhere"), recipient=str(fresh.chat()))
    await eventually(lambda: fleet.sql("SELECT FROM shared.audit_seals LIMIT 1"))
    whole = tmp_path / "audit.jsonl"
    await said(fleet, "audit", "export", str(whole))
    assert await checked(str(whole)) == (0, "The audit is whole.\n")
    assert "cannot be written" in await refused(fleet, "audit", "export", str(whole))

    records = [json.loads(text) for text in whole.read_text().splitlines()]
    covered = int(next(one["seal"]["seqs"] for one in records if "seal" in one)[2:].partition(",")[0])
    other = tmp_path / "changed.jsonl"
    changed = [
        {"line": [*one["line"][:6], "somebody", *one["line"][7:]]} if one.get("line", [""])[0] == str(covered) else one
        for one in records
    ]
    other.write_text("\n".join(json.dumps(one) for one in changed))
    assert await checked(str(other)) == (1, f"Line {covered} was changed or removed.\nThe audit is broken.\n")
    other.write_text("\n".join(json.dumps(one) for one in records if "seal" not in one or one["seal"]["n"] != 1))
    if sum("seal" in one for one in records) > 1:
        assert (await checked(str(other)))[0] == 1
    sealed = next(one for one in records if one.get("line", [""])[0] == str(covered))
    slipped = {"line": ["-5", *sealed["line"][1:]]}
    other.write_text("\n".join(json.dumps(one) for one in [*records, slipped]))
    if sum("seal" in one for one in records) > 1:
        assert "Line -5 is among the sealed ones" in (await checked(str(other)))[1]
    other.write_text("\n".join(json.dumps(one) for one in records if "seal" not in one))
    assert await checked(str(other)) == (1, "No seal is left.\nThe audit is broken.\n")
    code, told = await checked(str(whole), "A" * 43)
    assert (code, told.splitlines()[0]) == (1, "Seal 1 is not what the Messenger signed, or one before it is missing.")
