"""A session's token: it acts as its butler, knows its request, is one lineage to others, and ends with its session."""

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import MCPError

from tests.rig import fresh, outside_sessions
from tests.rig.fleet import Fleet


async def test_a_session_asks_once_for_the_same_words_to_somebody_else(fleet: Fleet) -> None:
    chat, said = fresh.chat(), fresh.words("from a session")
    contact = await fleet.contact(fresh.words("Anna"), telegram=chat)
    session_id, token = await fleet.session("health")
    call = {"channel": "telegram", "message": said, "contact_id": contact}
    first = await fleet.notify_by(token, **call)
    # Longer than equal calls without any lineage are one.
    await fleet.sql("UPDATE shared.request_windows SET first_at = first_at - interval '1 day'")
    again = await fleet.notify_by(token, **call)
    assert first["status"] == again["status"] == "pending_approval"
    assert (again["notification_id"], again["duplicate"]) == (first["notification_id"], True)
    assert (
        await fleet.value("SELECT session_id FROM shared.pending_actions WHERE id::text = $1", first["action_id"])
        == session_id
    )
    assert (
        await fleet.value("SELECT lineage FROM shared.notifications WHERE id::text = $1", first["notification_id"])
        == f"session:{session_id}"
    )


async def test_a_session_tells_the_owner_the_same_words_as_often_as_it_says_them(fleet: Fleet) -> None:
    said = fresh.words("drink water")
    _, token = await fleet.session("health")
    first = await fleet.notify_by(token, channel="telegram", message=said)
    await fleet.sql("UPDATE shared.request_windows SET first_at = first_at - interval '1 day'")
    second = await fleet.notify_by(token, channel="telegram", message=said)
    assert first["status"] == second["status"] == "ok"
    assert first["notification_id"] != second["notification_id"]


async def test_a_token_ends_with_its_session_and_is_for_its_butler(fleet: Fleet) -> None:
    session_id, token = await fleet.session("health")
    with pytest.raises((ToolError, MCPError)):
        await fleet.notify_by(token, "greeter", channel="telegram", message="from elsewhere")
    await outside_sessions.end(fleet.db, session_id, "health")
    with pytest.raises((ToolError, MCPError)):
        async with Client(f"{fleet.url('health')}/mcp", auth=token) as client:
            await client.list_tools()
