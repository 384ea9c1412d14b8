"""Of many rules only those come that may speak of the target; the decision is the same as with all of them."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.gate.decide import decide, matches
from shared.gate.gather import gather
from shared.model import Action, Rule
from shared.storage.contacts import Target
from tests.integration.house import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTACTS = ("11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
ADDRESSES = (
    "anna@example.org",
    "Anna@Example.ORG",
    "5000000000000042",
    "@Anna",
    "ÄNNA@example.org",
    "änna@example.org",
)
INSERT = """
INSERT INTO shared.approval_rules (tool_name, effect, arg_constraints) VALUES ('notify', $1, $2)
"""
EVERY = "SELECT id, effect, arg_constraints FROM shared.approval_rules WHERE tool_name = 'notify'"
FORGET = "DELETE FROM shared.approval_rules"


def spellings(words: Sequence[str], lots: random.Random) -> object:
    """A constraint on one of these: its own spelling, another, one of several, one nobody understands."""
    word = lots.choice(words)
    return lots.choice(
        [
            word,
            word.upper(),
            word.swapcase(),
            {"type": "exact", "value": word},
            {"type": "one_of", "value": [word, "x@example.org"]},
            {"type": "domain", "value": "example.org"},
            {"type": "surprising", "value": word},
            [word],
            None,
            42,
        ]
    )


async def test_a_rule_left_out_would_not_have_matched(still_house: House) -> None:
    lots = random.Random(20261124)
    await still_house.sql.execute(FORGET)
    for _ in range(400):
        constraints = {
            name: spellings(words, lots)
            for name, words in (("contact_id", CONTACTS), ("recipient", ADDRESSES))
            if lots.random() < 0.7
        }
        constraints = constraints or {"contact_id": CONTACTS[0]}
        await still_house.sql.execute(INSERT, lots.choice(["allow", "deny"]), constraints)
    fewest = 400
    for contact in (*CONTACTS, None):
        for address in ADDRESSES:
            target = Target(address, contact_id=contact)
            facts = await gather(still_house.sql, "email", CONTACTS[0], target)
            action = Action(
                "health",
                "health",
                "send",
                "email",
                address,
                contact,
                is_owner=False,
                deliverable=True,
                realm=facts.realm,
                content_sha="",
                length=5,
            )
            every = [
                Rule(str(row["id"]), row["effect"], row["arg_constraints"])
                for row in await still_house.sql.fetch(EVERY)
            ]
            wanted = {rule.id for rule in every if matches(rule, action)}
            assert {rule.id for rule in facts.rules if matches(rule, action)} == wanted
            assert decide(action, facts).verdict == decide(action, replace(facts, rules=tuple(every))).verdict
            fewest = min(fewest, len(facts.rules))
    assert fewest < 300, "Nothing was left out, so nothing was tried."
    await still_house.sql.execute(FORGET)
