"""docs/schemas says what the models say, and the schemas tell good envelopes from bad ones as the models do."""

import json
from collections.abc import Mapping

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from shared.contracts import ENVELOPES, wire
from tests.schemas import FOLDER, text_of

CONTEXT: dict[str, object] = {
    "request_id": "telegram:42",
    "source_channel": "telegram",
    "source_endpoint_identity": "1",
    "source_sender_identity": "5000000000000002",
    "source_thread_identity": "5000000000000002:17",
    "received_at": "2026-11-21T10:00:00+00:00",
}
LUNCH: dict[str, object] = {"channel": "telegram", "message": "Lunch?", "recipient": "5000000000000002"}
NOTIFY: dict[str, object] = {"schema_version": "notify.v1", "origin_butler": "greeter", "delivery": LUNCH}
ANSWER: dict[str, object] = {
    "schema_version": "notify_response.v1",
    "status": "ok",
    "notification_id": "e12b3bc4-34d3-4321-925f-d9d10c640f49",
    "delivery": {"channel": "telegram", "delivery_id": "17", "parts": 2, "sandbox": True},
}
TARGET: dict[str, object] = {"butler": "messenger", "tool": "route.execute"}
ROUTE: dict[str, object] = {
    "schema_version": "route.v1",
    "request_context": CONTEXT | {"trace": "kept as it is"},
    "target": TARGET,
    "input": {"context": {"notify_request": NOTIFY}},
}
ROUTED: dict[str, object] = {
    "schema_version": "route_response.v1",
    "request_context": CONTEXT,
    "status": "ok",
    "result": {"notify_response": ANSWER},
    "timing": {"duration_ms": 7.5},
}
INGEST: dict[str, object] = {
    "schema_version": "ingest.v1",
    "source": {"channel": "telegram", "provider": "telegram", "endpoint_identity": "1"},
    "event": {"external_event_id": "42", "external_thread_id": "5:17", "observed_at": "2026-11-21T10:00:00+00:00"},
    "sender": {"identity": "5000000000000002", "display_name": "Anna"},
    "payload": {"text": "Yes!"},
    "control": {"idempotency_key": "42"},
}
TOO_LATE: dict[str, object] = {"class": "timeout", "message": "Too late.", "retryable": True}

GOOD: list[tuple[str, Mapping[str, object]]] = [
    ("notify.v1", NOTIFY),
    ("notify.v1", NOTIFY | {"request_context": CONTEXT, "notification_id": "e12b3bc4-34d3-4321-925f-d9d10c640f49"}),
    ("notify.v1", NOTIFY | {"delivery": {"intent": "react", "channel": "telegram", "emoji": "👍"}}),
    ("notify_response.v1", ANSWER),
    ("notify_response.v1", {"status": "error", "error": TOO_LATE, "duplicate": True, "note": "n"}),
    ("notify_response.v1", ANSWER | {"grown": "since"}),
    ("route.v1", ROUTE),
    ("route.v1", ROUTE | {"input": {"prompt": "What is on today?"}, "trace_context": {"traceparent": "00-1-2-00"}}),
    ("route_response.v1", ROUTED),
    ("route_response.v1", {"status": "error", "error": TOO_LATE, "timing": {"duration_ms": 1}}),
    ("ingest.v1", INGEST),
    ("ingest.v1", INGEST | {"payload": {"text": "", "attachments": [{"name": "map.png"}]}}),
]
BAD: list[tuple[str, Mapping[str, object]]] = [
    ("notify.v1", NOTIFY | {"schema_version": "notify.v2"}),
    ("notify.v1", NOTIFY | {"origin_butler": "The Greeter"}),
    ("notify.v1", NOTIFY | {"urgent": True}),
    ("notify.v1", NOTIFY | {"delivery": LUNCH | {"channel": "fax"}}),
    ("notify.v1", NOTIFY | {"delivery": LUNCH | {"message": "x" * 10_001}}),
    ("notify.v1", {"schema_version": "notify.v1", "origin_butler": "greeter"}),
    ("notify_response.v1", {"schema_version": "notify_response.v1"}),
    ("notify_response.v1", ANSWER | {"status": "sent"}),
    ("notify_response.v1", {"status": "error", "error": TOO_LATE | {"class": "oops"}}),
    ("route.v1", ROUTE | {"request_context": {"request_id": "42"}}),
    ("route.v1", ROUTE | {"target": {"butler": "messenger", "tool": ""}}),
    ("route_response.v1", {"status": "ok"}),
    ("route_response.v1", ROUTED | {"status": "queued"}),
    ("ingest.v1", INGEST | {"sender": {"display_name": "Anna"}}),
    ("ingest.v1", INGEST | {"control": {"priority": 1}}),
]


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def test_there_is_a_file_per_envelope_and_no_other() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(f"{name}.json" for name in ENVELOPES)


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_file_is_what_the_model_says_now(name: str) -> None:
    written = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert written == text_of(name), "Write it anew: python -m tests.schemas"


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_file_is_a_json_schema(name: str) -> None:
    Draft202012Validator.check_schema(validator(name).schema)


@pytest.mark.parametrize(("name", "envelope"), GOOD)
def test_a_good_envelope_passes_both(name: str, envelope: Mapping[str, object]) -> None:
    assert [error.message for error in validator(name).iter_errors(envelope)] == []
    again: BaseModel = ENVELOPES[name].model_validate(envelope)
    assert [error.message for error in validator(name).iter_errors(wire(again))] == []


@pytest.mark.parametrize(("name", "envelope"), BAD)
def test_a_bad_envelope_passes_neither(name: str, envelope: Mapping[str, object]) -> None:
    assert not validator(name).is_valid(envelope)
    with pytest.raises(ValidationError):
        ENVELOPES[name].model_validate(envelope)
