"""Words, chats and addresses that no other test of the run uses."""

import itertools

_numbers = itertools.count(1)


def words(about: str = "words") -> str:
    """A text that is found in the journal by itself: no other one contains it."""
    return f"{about} <{next(_numbers)}>"


def chat() -> int:
    """A person's private chat."""
    return 7_000_000_000 + next(_numbers)


def address() -> str:
    """A person's e-mail address."""
    return f"person{next(_numbers)}@people.test"
