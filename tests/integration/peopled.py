"""A console with one of each thing that has a page, and what each page's form would send."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.integration.console_runner import Running

PEOPLE = """
WITH me AS (UPDATE shared.contacts SET name = $1 WHERE 'owner' = ANY (roles) RETURNING id),
    rule AS (INSERT INTO shared.approval_rules (arg_constraints, description)
        SELECT jsonb_build_object('contact_id', id), $1 FROM me RETURNING id)
SELECT (SELECT id::text FROM me) AS contact, (SELECT id::text FROM rule) AS rule
"""
DELIVERY = """
INSERT INTO messenger.deliveries (notification_id, class, channel, address, status)
SELECT notification_id, 'third_party', 'telegram', '4242', 'uncertain' FROM shared.pending_actions WHERE id = $1
RETURNING id::text
"""

QUESTION = """
INSERT INTO shared.questions (id, origin_butler, title, question, options, action_label, urgency, expires_at)
VALUES (gen_random_uuid(), 'greeter', $1, $1, ARRAY[$1], 'OK', 'normal', clock_timestamp() + interval '1 hour')
RETURNING id::text
"""
SESSION = """
INSERT INTO shared.sessions (id, butler, prompt) VALUES (gen_random_uuid(), 'greeter', $1) RETURNING id::text
"""


@dataclass(frozen=True, slots=True)
class Ids:
    """One of each thing that has a page."""

    action: str
    contact: str
    rule: str
    delivery: str
    told: str
    question: str
    butler: str = "x"
    session: str = "x"

    def pages(self) -> Sequence[str]:
        """Every page the owner can open."""
        return (
            "/",
            "/approvals",
            f"/approvals/{self.action}",
            "/contacts",
            f"/contacts/{self.contact}",
            "/rules",
            f"/rules/{self.rule}",
            f"/rules/{self.rule}?test=past",
            "/deliveries",
            f"/deliveries/{self.delivery}",
            f"/deliveries/{self.told}",
            f"/questions/{self.question}",
            f"/butlers/{self.butler}",
            "/audit",
        )

    def forms(self, code: str = "unused") -> Mapping[str, Mapping[str, str]]:
        """What each page's form would send, by its address."""
        return {
            f"/approvals/{self.action}": {"word": "approve", "revision": "1"},
            "/contacts": {"name": "Eve", "email": "eve@example.org"},
            f"/contacts/{self.contact}": {"do": "add", "type": "email", "value": "evil@example.org"},
            "/rules": {"do": "add", "recipient": "4242"},
            f"/rules/{self.rule}": {"do": "revoke"},
            f"/deliveries/{self.delivery}": {"word": "again", "attempt": "0"},
            f"/questions/{self.question}": {"choice": "0"},
            f"/butlers/{self.butler}": {"stop": self.session},
            "/brake": {"do": "pause"},
            "/sign-out": {},
            "/sign-in": {"code": code},
        }


async def peopled(console: Running, words: str = "Lunch on Thursday?") -> Ids:
    action = await console.park(butler="messenger", message=words, summary=words, subject=words)
    people = await console.sql.fetchrow(PEOPLE, words)
    assert people is not None
    delivery = await console.sql.fetchval(DELIVERY.replace("$1", "$1::text::uuid"), action)
    told = await console.sql.fetchval(
        "SELECT notification_id::text FROM shared.pending_actions WHERE id = $1::text::uuid", action
    )
    session = await console.sql.fetchval(SESSION, words)
    question = await console.sql.fetchval(QUESTION, words)
    return Ids(action, people["contact"], people["rule"], delivery, told, question, "greeter", session)
