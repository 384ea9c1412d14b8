"""`butlers audit verify` beside a running fleet."""

import json

from tests.acceptance.test_owner_commands import refused, said
from tests.rig import fresh
from tests.rig.fleet import Fleet

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
