"""What is asked anew once its digest is over is asked by a card, like what had one."""

import pytest

from tests.integration.gate.test_flood import BURST, CARDS, OLDER, TEN_MINUTES, digests_of, quiet, write
from tests.integration.house import House
from tests.integration.workers import ACTION, enqueue, new_chat, work

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["quiet"]
OVER = "UPDATE messenger.deliveries SET status = 'sent', reason = 'closed' WHERE digest_id IS NOT NULL"
MOVED = """
UPDATE shared.contact_info SET value = $2
WHERE id = (SELECT contact_info_id FROM shared.notifications WHERE id = $1)
"""
CARD_OF = "SELECT count(*) FROM messenger.deliveries WHERE action_id = $1 AND revision = $2"


async def test_what_is_asked_anew_after_its_digest_was_over_is_asked_by_a_card(quiet: House) -> None:
    told = list[str]()
    for n in range(BURST + 1):
        answer = await quiet.notify(contact_id=await quiet.contact(f"Zoe {n}", telegram=new_chat()), message=f"w{n}")
        told.append(str(answer["notification_id"]))
        await quiet.sql.execute(OLDER)
    await write(quiet)
    assert (await quiet.sql.fetchval(CARDS), await digests_of(quiet)) == (BURST, [1])
    listed = await quiet.row(ACTION, told[-1])
    await quiet.decide(listed["id"])
    await quiet.sql.execute(OVER)
    await quiet.sql.execute(MOVED, told[-1], new_chat())
    await enqueue(quiet, told[-1])
    await work(quiet.worker())
    assert (await quiet.row(ACTION, told[-1]))["revision"] == 2
    await quiet.sql.execute(TEN_MINUTES)
    await quiet.sql.execute(OLDER)
    await write(quiet)
    assert await quiet.sql.fetchval(CARD_OF, listed["id"], 2) == 1
