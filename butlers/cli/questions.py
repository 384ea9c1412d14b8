"""questions list, show, answer: what butlers ask the owner, answered from the command line."""

import asyncio
from typing import Annotated

import typer

from butlers.cli.options import SHORT, HomeOption, JsonOption
from butlers.cli.terminal import (
    as_owner,
    instant,
    only,
    owner_id,
    say,
    say_json,
    say_lines,
    settings_of,
    table,
    text_of,
)
from shared.db.pool import Connection, Record
from shared.display import question as display
from shared.display.quotes import quotation
from shared.display.visible import in_line
from shared.errors import ButlersError, InvalidInput
from shared.storage import questions
from shared.storage.questions import Given

app = typer.Typer(help="Questions your butlers ask you.", no_args_is_help=True)
WHICH = typer.Argument(metavar="ID", help="The question; a beginning of its id is enough.")


def add_to(line: typer.Typer) -> None:
    """Put these commands on the command line."""
    line.add_typer(app, name="questions")


async def _one(connection: Connection, beginning: str) -> Record:
    row = await questions.one(connection, only(await questions.ids_of(connection, beginning), beginning, "question"))
    return only([] if row is None else [row], beginning, "question")


@app.command("list")
def list_questions(
    every: Annotated[bool, typer.Option("--all", help="Answered and ended ones too.")] = False,  # noqa: FBT002  # typer's way
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """List the questions that wait for your answer."""

    async def read() -> list[Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await (questions.latest_questions(connection) if every else questions.open_questions(connection))

    rows = asyncio.run(read())
    if as_json:
        say_json({"questions": [dict(row) for row in rows]})
    elif not rows:
        say("No questions." if every else "No question waits for you.")
    else:
        cells = [
            [
                r["id"][:SHORT],
                r["origin_butler"],
                r["urgency"],
                r["status"],
                instant(r["asked_at"], "seconds"),
                in_line(r["title"]),
            ]
            for r in rows
        ]
        table(("id", "butler", "urgency", "status", "asked", "title"), cells)


@app.command()
def show(
    question: Annotated[str, WHICH],
    as_json: JsonOption = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Show one question, and what can be answered."""

    async def read() -> Record:
        async with as_owner(settings_of(None, home_folder)) as connection:
            return await _one(connection, question)

    row = asyncio.run(read())
    if as_json:
        say_json(dict(row))
        return
    say(display.asks(row["origin_butler"], row["id"]))
    for quote in display.words(row):
        say_lines(quotation(quote))
    if not row["open"]:
        say(display.what_became(row))
        return
    say("Choices:")
    for place, label in enumerate(display.labels(row), start=1):
        say(f"  {place}. {display.offered(label)}")
    words = ", --text WORDS" if row["allow_text"] else ""
    say(f"Answer with `butlers questions answer {row['id'][:SHORT]} NUMBER`{words} or --dismiss.")


@app.command()
def answer(
    question: Annotated[str, WHICH],
    choice: Annotated[int | None, typer.Argument(metavar="NUMBER", help="The choice, as `show` counts them.")] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="An answer in your own words; `-` reads them from standard input.")
    ] = None,
    dismiss: Annotated[bool, typer.Option("--dismiss", help="Close it without a choice.")] = False,  # noqa: FBT002  # typer's way
    home_folder: HomeOption = None,
) -> None:
    """Answer a question. An answer is information for its butler, and approves nothing."""
    if [choice is not None, text is not None, dismiss].count(True) != 1:
        raise InvalidInput("Give one answer.", "That is a NUMBER, --text or --dismiss.")
    words = None if text is None else display.own_words(text_of(text))
    given = Given(None if choice is None else choice - 1, words)

    async def write() -> tuple[bool, Record]:
        async with as_owner(settings_of(None, home_folder)) as connection:
            row = await _one(connection, question)
            if text is not None and words is None:
                raise InvalidInput("The answer is empty or too long.", "Write up to 10,000 characters.")
            counts = await questions.answer(connection, row["id"], given, "cli", await owner_id(connection))
            return counts, await _one(connection, row["id"])

    counts, row = asyncio.run(write())
    if not counts and row["open"]:
        raise InvalidInput("That is not among the choices.", f"See `butlers questions show {row['id'][:SHORT]}`.")
    if not counts:
        raise ButlersError(f"Nothing was changed: {display.what_became(row)}")
    say(display.what_became(row))
