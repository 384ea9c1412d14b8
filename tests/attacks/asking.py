"""Verbs about questions to the owner: one is asked, its card, how it stands, and a desk that signed in properly."""

import uuid
from typing import Final, cast

from butlers.console.storage.sessions import make_desk_code
from tests.attacks.doors import call
from tests.attacks.world import Arguments, Seen, World
from tests.rig.waiting import LONGEST


async def desk(world: World, given: Arguments) -> Seen:
    """`token`: what a desk holds that was paired by its owner; the code is kept as `code`, and is spent."""
    code, url = uuid.uuid4().hex, world.url("console")
    await make_desk_code(world.fleet.db, code)
    async with world.http.post(f"{url}/desk/sign-in", json={"code": code}, headers={"Origin": url}) as answer:
        token = str((await answer.json())["token"])
    world.known |= {"code": code, str(given.get("into", "token")): token}
    return {"token": token, "text": ""}


async def question(world: World, given: Arguments) -> Seen:
    """A question of health's with the nonce in it; its id is kept as `into`, else `question`."""
    nonce = world.known["nonce"]
    arguments = {"title": f"Asked {nonce}", "question": nonce, "options": ["Yes", "No"]}
    arguments |= cast("dict[str, object]", given.get("arguments", {}))
    token = await world.fleet.token("health")
    answered = await call(world, {"to": "health", "tool": "ask_user", "arguments": arguments, "token": token})
    world.known[str(given.get("into", "question"))] = cast("dict[str, object]", answered["answer"])["question_id"]
    return answered


async def question_card(world: World, given: Arguments) -> Seen:
    """The card of a question, its number kept as `card` and its buttons' data as `choice1`, `choice2` and so on.

    `first` is its first line, and `buttons` is what its buttons say.
    """
    found = await world.fleet.outside.card(str(given["question"]), LONGEST)
    choices = {f"choice{n}": data for n, data in enumerate(found.buttons.values(), 1)}
    world.known |= {"card": found.message_id, **choices}
    return {"text": found.text, "first": found.text.split("\n")[0].split(" (ref")[0], "buttons": list(found.buttons)}


STANDS: Final = "SELECT status FROM shared.questions WHERE id = $1::text::uuid"


async def question_stands(world: World, given: Arguments) -> Seen:
    """`status`: how a question stands."""
    return {"status": await world.fleet.value(STANDS, given["question"]), "text": ""}


VERBS: Final = {
    "desk": desk,
    "question": question,
    "question_card": question_card,
    "question_stands": question_stands,
}
