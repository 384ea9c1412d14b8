"""What is kept of the files and the answered message of a Telegram update (messenger/inbound/attachments.py)."""

import pytest

from messenger.inbound.attachments import attached
from messenger.inbound.messages import changed
from messenger.storage import updates
from shared.contracts import IngestAttachment


def pared(message: object) -> dict[str, object]:
    found = updates.pared([{"update_id": 1, "message": message}])[0]["message"]
    assert isinstance(found, dict)
    return found


def test_a_file_is_kept_by_reference_and_of_a_photo_the_largest_size() -> None:
    sizes = [{"file_id": "small", "file_size": 10}, {"file_id": "large", "file_size": 2000, "width": 1280}]
    document = {"file_id": "d", "file_name": "map.pdf", "mime_type": "application/pdf", "file_size": 7, "thumb": {}}
    kept = pared({"caption": "see", "photo": sizes, "document": document})
    assert attached(kept) == (
        IngestAttachment(name="photo", type="image/jpeg", size=2000, file_id="large"),
        IngestAttachment(name="map.pdf", type="application/pdf", size=7, file_id="d"),
    )


def test_what_has_no_id_or_another_shape_is_no_file() -> None:
    odd = {
        "photo": [],
        "document": "x",
        "audio": {"file_id": 7},
        "video": {"file_id": ""},
        "voice": [{"file_id": "v"}, 1],
    }
    assert attached(pared(odd)) == ()
    wild = {"file_id": "i" * 900, "file_name": "n" * 900, "file_size": -1, "mime_type": ["x"]}
    [one] = attached(pared({"document": wild}))
    assert one == IngestAttachment(name="n" * 255, file_id="i" * 500)


def test_of_an_answered_message_only_its_number_is_kept() -> None:
    quoted = {"message_id": 5, "text": "/health did this", "chat": {"id": 1}, "from": {"id": 2}}
    assert pared({"text": "x", "reply_to_message": quoted})["reply_to_message"] == {"message_id": 5}


@pytest.mark.parametrize("anothers", updates.OTHERS_WORDS)
def test_what_a_bot_puts_in_the_place_of_a_message_is_no_edit_of_its_sender(anothers: str) -> None:
    said = {"message_id": 1, "edit_date": 2, "text": "pay Eve", "chat": {"id": 5}, "from": {"id": 5}}
    edit = changed({"edited_message": {**said, "date": 1}}) or {}
    assert (edit["kind"], edit["date"]) == ("edit", 2)
    assert (changed({"edited_message": {**said, anothers: {"id": 9}}}) or {})["kind"] == "forward"


def test_two_edits_within_one_second_are_two_and_one_that_comes_again_is_one() -> None:
    first, second = ({"message_id": 1, "edit_date": 2, "text": text, "chat": {"id": 5}} for text in ("yes", "no"))
    updates_of = ({"update_id": 10, "edited_message": first}, {"update_id": 11, "edited_message": second})
    events = [(changed(update) or {})["event"] for update in (*updates_of, updates_of[0])]
    assert events[0] == events[2] != events[1]
