"""The files that came with a Telegram message, by reference: name, type, size and the provider's own id. Pure."""

from collections.abc import Mapping
from typing import Final

from shared.contracts import IngestAttachment

# What a message may carry one of; a photo comes in several sizes, of which the last is the largest.
KINDS: Final[Mapping[str, str | None]] = {
    "photo": "image/jpeg",
    "document": None,
    "audio": None,
    "voice": "audio/ogg",
    "video": None,
    "animation": None,
    "video_note": "video/mp4",
}
LONGEST_NAME: Final = 255
LONGEST_TYPE: Final = 127
LONGEST_FILE_ID: Final = 500
LARGEST: Final = 2**53


def attached(message: Mapping[str, object]) -> tuple[IngestAttachment, ...]:
    """Return what is attached to a message; what has no id at the provider can never be fetched, and is left out."""
    return tuple(
        IngestAttachment(
            name=_text(found.get("file_name"), LONGEST_NAME) or kind,
            type=_text(found.get("mime_type"), LONGEST_TYPE) or usual,
            size=_size(found.get("file_size")),
            file_id=file_id,
        )
        for kind, usual in KINDS.items()
        if isinstance(found := message.get(kind), Mapping)
        and (file_id := _text(found.get("file_id"), LONGEST_FILE_ID)) is not None
    )


def _text(value: object, most: int) -> str | None:
    return value[:most] if isinstance(value, str) and value else None


def _size(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST else None
