"""Questions of butlers in the console and on the command line, each usable without a script."""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio

from shared.storage import questions
from tests.integration.commands import call, said
from tests.integration.console_runner import Running
from tests.integration.database.test_questions import asked
from tests.integration.house import House
from tests.integration.signed_in import fields, page, plain, signed_in

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(still_house: House) -> AsyncIterator[Running]:
    async with signed_in(still_house) as running:
        yield running


TAKEN_BACK = """
INSERT INTO shared.questions (id, origin_butler, title, question, action_label, urgency, expires_at, status, closed_at)
SELECT gen_random_uuid(), 'health', 'Many', 'One of many?', 'OK', 'low', clock_timestamp() + interval '1 day',
    'withdrawn', clock_timestamp() FROM generate_series(1, 1100)
"""


async def stands(house: House, question: str) -> tuple[object, ...]:
    row = await questions.one(house.sql, question)
    assert row is not None
    return row["status"], row["choice"], row["surface"]


async def test_the_start_page_leads_to_the_question_which_is_answered_by_a_form(
    still_house: House, console: Running
) -> None:
    question = await asked(still_house, "Yes", "No")
    start = await page(console, "/")
    assert f'href="/questions/{question}"' in start
    shown = await page(console, f"/questions/{question}")
    assert "It is not an approval request." in plain(shown)
    assert "“Yes” “No” Dismiss" in plain(shown)
    assert "textarea" not in shown
    answer = await console.post(f"/questions/{question}", choice="1", csrf=fields(shown)["csrf"])
    assert (answer.status, answer.headers["location"]) == (303, f"/questions/{question}")
    assert await stands(still_house, question) == ("dismissed", "No", "console")
    assert "Answered in the console: “No”" in plain(await page(console, f"/questions/{question}"))
    assert question not in await page(console, "/")


async def test_the_second_answer_changes_nothing_and_says_so(still_house: House, console: Running) -> None:
    question = await asked(still_house, "Yes", "No", allow_text=True)
    form = fields(await page(console, f"/questions/{question}"))
    await console.post(f"/questions/{question}", choice="text", text="a\r\nb", csrf=form["csrf"])
    late = await console.post(f"/questions/{question}", choice="0", csrf=form["csrf"])
    assert late.status == 409
    assert "Nothing was changed" in plain(await late.text())
    assert await stands(still_house, question) == ("accepted", "a\nb", "console")


async def test_no_answer_comes_without_the_owners_form(still_house: House, console: Running) -> None:
    question = await asked(still_house, "Yes", "No")
    form = fields(await page(console, f"/questions/{question}"))
    assert (await console.post(f"/questions/{question}", choice="0", csrf="forged")).status == 403
    for wrong in ({"choice": "approve"}, {"choice": "text", "text": " "}, {"choice": "999"}):
        assert (await console.post(f"/questions/{question}", csrf=form["csrf"], **wrong)).status == 400
    assert (await console.post(f"/questions/{question}", choice="7", csrf=form["csrf"])).status == 409
    assert (await console.get(f"/questions/{uuid4()}")).status == 404
    assert await stands(still_house, question) == ("open", None, None)


async def test_a_butlers_words_are_data_on_the_page(still_house: House, console: Running) -> None:
    words = "<script>alert(1)</script>\u202e"
    new = questions.NewQuestion(str(uuid4()), "greeter", words, words, (words,), about={"repo": words})
    timings = still_house.settings.timings
    async with still_house.context("greeter").db.work() as connection:
        assert await questions.ask(connection, new, questions.Times(timings.question_lasts, timings.question_heard))
    for path in ("/", f"/questions/{new.id}"):
        shown = await page(console, path)
        assert "<script>alert" not in shown
        assert "\u202e" not in shown
        assert "&lt;script&gt;" in shown


async def test_the_command_line_lists_shows_and_answers(still_house: House) -> None:
    question = await asked(still_house, "Yes", "No", "Later")
    short = question[:8]
    assert short in await said(still_house, "questions", "list")
    listed = json.loads(await said(still_house, "questions", "list", "--json"))["questions"]
    assert question in {one["id"] for one in listed}
    shown = await said(still_house, "questions", "show", short)
    assert "It is not an approval request." in shown
    assert "3. “Later”" in shown
    wrong = await asyncio.to_thread(call, still_house, "questions", "answer", short, "4")
    assert "That is not among the choices." in str(wrong.exception)
    none = await asyncio.to_thread(call, still_house, "questions", "answer", short)
    assert "Give one answer." in str(none.exception)
    assert "Answered on the command line: “Later”" in await said(still_house, "questions", "answer", short, "3")
    again = await asyncio.to_thread(call, still_house, "questions", "answer", short, "--dismiss")
    assert "Nothing was changed" in str(again.exception)
    assert await stands(still_house, question) == ("accepted", "Later", "cli")


async def test_whatever_others_took_back_a_question_is_meant_by_its_id(still_house: House) -> None:
    question = await asked(still_house, "Yes", "No")
    await still_house.sql.execute(TAKEN_BACK)
    assert "2. “No”" in await said(still_house, "questions", "show", question[:8])
    assert "“No”" in await said(still_house, "questions", "answer", question[:8], "2")
    assert await stands(still_house, question) == ("dismissed", "No", "cli")
    none = await asyncio.to_thread(call, still_house, "questions", "show", "")
    assert str(none.exception).startswith("No question matches the id ``.")
