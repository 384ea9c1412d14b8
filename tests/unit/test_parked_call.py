"""What waits for the owner is the whole call: everything that was asked is kept with the pending action."""

from shared.gate.accept import accept
from shared.gate.admit import tool_args

ANNA = "11111111-1111-4111-8111-111111111111"


def kept(**arguments: object) -> dict[str, object]:
    """What is kept of this call."""
    call = accept("health", arguments)
    return tool_args(call.envelope, str(call.whom))


def test_a_mail_keeps_subject_text_and_contact() -> None:
    asked = {"channel": "email", "message": "The report\nis done.", "subject": "Report", "contact_id": ANNA}
    assert kept(**asked) == {**asked, "intent": "send"}


def test_an_address_is_kept_as_it_was_named() -> None:
    asked = {"channel": "email", "message": "Hello", "recipient": "anna@example.org"}
    assert kept(**asked) == {**asked, "intent": "send"}


def test_a_reaction_keeps_emoji_thread_and_the_callers_own_keys() -> None:
    context = {
        "request_id": "r1",
        "source_channel": "telegram",
        "source_endpoint_identity": "bot",
        "source_sender_identity": "4242",
        "source_thread_identity": "4242:7",
        "more": {"of": [1]},
    }
    asked = {"channel": "telegram", "intent": "react", "emoji": "\u2764", "request_context": context}
    assert kept(**asked) == {**asked, "message": ""}
