"""The envelopes: frozen, strict about what is asked, patient with what is answered."""

from collections.abc import Mapping

import pytest
from pydantic import BaseModel, ValidationError

from shared.contracts import (
    ENVELOPES,
    RETRYABLE,
    ErrorClass,
    NotifyEnvelope,
    NotifyResponse,
    RouteEnvelope,
    RouteResponse,
    failure,
    route_request,
    wire,
)

CONTEXT: Mapping[str, object] = {
    "request_id": "r1",
    "source_channel": "telegram_bot",
    "source_endpoint_identity": "bot",
    "source_sender_identity": "4242",
    "a_key_of_tomorrow": {"nested": [1]},
}
NOTIFY: Mapping[str, object] = {
    "schema_version": "notify.v1",
    "origin_butler": "health",
    "delivery": {"intent": "send", "channel": "telegram", "message": "Hello"},
    "request_context": CONTEXT,
}
ROUTE: Mapping[str, object] = {
    "schema_version": "route.v1",
    "request_context": CONTEXT,
    "target": {"butler": "messenger", "tool": "route.execute"},
    "input": {"context": {"notify_request": NOTIFY}},
}
TOLD: Mapping[str, object] = {
    "schema_version": "notify_response.v1",
    "status": "ok",
    "notification_id": "n1",
    "delivery": {"channel": "telegram", "delivery_id": "7"},
}
INGEST: Mapping[str, object] = {
    "schema_version": "ingest.v1",
    "source": {"channel": "telegram", "provider": "telegram", "endpoint_identity": "bot"},
    "event": {"external_event_id": "1", "observed_at": "2026-01-01T00:00:00+00:00"},
    "sender": {"identity": "4242"},
    "payload": {"text": "hi"},
}
ROUTED: Mapping[str, object] = {
    "schema_version": "route_response.v1",
    "request_context": CONTEXT,
    "status": "ok",
    "result": {"notify_response": TOLD},
    "timing": {"duration_ms": 1.5},
}
EXAMPLES: Mapping[str, Mapping[str, object]] = {
    "notify.v1": NOTIFY,
    "notify_response.v1": TOLD,
    "route.v1": ROUTE,
    "route_response.v1": ROUTED,
    "ingest.v1": INGEST,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_envelope_travels_unchanged(name: str) -> None:
    model = ENVELOPES[name]
    once = wire(model.model_validate(EXAMPLES[name]))
    assert once["schema_version"] == name
    assert wire(model.model_validate(once)) == once


def test_every_envelope_has_an_example_here() -> None:
    assert set(EXAMPLES) == set(ENVELOPES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_envelope_is_frozen(name: str) -> None:
    envelope = ENVELOPES[name].model_validate(EXAMPLES[name])
    with pytest.raises(ValidationError):
        setattr(envelope, "schema_version", "other")  # noqa: B010  # a name mypy need not know


@pytest.mark.parametrize("name", ["notify.v1", "route.v1", "ingest.v1"])
def test_an_unknown_key_of_a_request_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ENVELOPES[name].model_validate({**EXAMPLES[name], "priority": "high"})


def test_an_unknown_key_within_a_delivery_is_refused() -> None:
    delivery = {"channel": "telegram", "message": "Hello", "recipent": "4242"}
    with pytest.raises(ValidationError, match="recipent"):
        NotifyEnvelope.model_validate({**NOTIFY, "delivery": delivery})


@pytest.mark.parametrize("name", ["notify_response.v1", "route_response.v1"])
def test_an_unknown_key_of_a_response_is_passed_over(name: str) -> None:
    model: type[BaseModel] = ENVELOPES[name]
    read = model.model_validate({**EXAMPLES[name], "cost": 7})
    assert read == model.model_validate(EXAMPLES[name])
    assert "cost" not in wire(read)


@pytest.mark.parametrize("name", EXAMPLES)
def test_another_version_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        ENVELOPES[name].model_validate({**EXAMPLES[name], "schema_version": "other.v2"})


def test_extra_keys_of_a_request_context_are_forwarded_as_they_are() -> None:
    assert wire(NotifyEnvelope.model_validate(NOTIFY))["request_context"] == CONTEXT
    assert wire(RouteEnvelope.model_validate(ROUTE))["request_context"] == CONTEXT


@pytest.mark.parametrize("origin", ["", "Health", "1health", "he alth", "h" * 32, "health\n", "../health"])
def test_an_origin_is_a_butler_name(origin: str) -> None:
    with pytest.raises(ValidationError):
        NotifyEnvelope.model_validate({**NOTIFY, "origin_butler": origin})


def test_the_error_object_calls_its_class_class() -> None:
    told = NotifyResponse(status="error", error=failure("timeout", "Too slow."))
    assert wire(told)["error"] == {"class": "timeout", "message": "Too slow.", "retryable": True}


@pytest.mark.parametrize("error_class", ["validation_error", "forbidden", "provider_rejected", "internal_error"])
def test_what_will_not_work_the_second_time_is_not_retryable(error_class: ErrorClass) -> None:
    assert failure(error_class, "No.").retryable is False
    assert error_class not in RETRYABLE


def test_retryable_may_be_said_otherwise() -> None:
    assert failure("internal_error", "Again.", retryable=True).retryable is True
    assert failure("timeout", "Never.", retryable=False).retryable is False


def test_a_status_outside_the_contract_is_no_answer() -> None:
    with pytest.raises(ValidationError):
        NotifyResponse.model_validate({**TOLD, "status": "probably"})
    with pytest.raises(ValidationError):
        RouteResponse.model_validate({**ROUTED, "status": "probably"})


def test_a_route_carries_its_request_and_its_trace() -> None:
    asked = {"request_context": CONTEXT}
    first, again, other = (route_request(asked, "health", name) for name in ("a", "a", "b"))
    assert first["request_context"] == asked["request_context"]
    assert RouteEnvelope.model_validate(first).trace_context == first["trace_context"] == again["trace_context"]
    assert first["trace_context"] != other["trace_context"]
    for without in ({}, {"request_context": {"idempotency_key": "k"}}):
        own = RouteEnvelope.model_validate(route_request(without, "health", "a")).request_context
        assert (own.request_id, own.source_sender_identity) == ("a", "health")
