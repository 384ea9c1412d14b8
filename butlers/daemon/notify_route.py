"""`POST /notify`: the tool notify for whoever speaks no MCP, such as `curl` in a cron job."""

import json
from collections.abc import Mapping
from typing import Final

from fastmcp import FastMCP
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from butlers.butler import Answer, Tool, ToolCall
from butlers.daemon.mcp_server import caller_of
from shared.errors import ButlersError, Forbidden

# By the class of the contract's error; any other is the provider's.
STATUS: Final = {"forbidden": 403, "idempotency_conflict": 409, "target_unavailable": 503}


def add_notify_route(server: FastMCP, tool: Tool) -> None:
    """Serve the tool to a client token: the contract's fields as a JSON object in, its answer out.

    The same handler as over MCP; what is refused there is refused here. Status 200 is an answer without an error.
    """

    @server.custom_route("/notify", methods=["POST"])
    async def notify(request: Request) -> Response:
        user = request.scope.get("user")
        if user is None or not user.is_authenticated:
            return _refused(401, "A client token is missing or not valid. Create one with `butlers token NAME`.")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refused(415, "The body must be JSON. Send it with the header `Content-Type: application/json`.")
        arguments = _object(await request.body())
        if arguments is None:
            return _refused(400, "The body is not a JSON object of complete characters. Send the fields of notify.")
        claims = user.access_token.claims
        try:
            answer = (await tool.handler(ToolCall(caller_of(claims), arguments))).answer or {}
        except ButlersError as failed:
            return _refused(403 if isinstance(failed, Forbidden) else 503, str(failed))
        return JSONResponse(dict(answer), _status(answer))


def _object(body: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(body)
        # Half a character is a ValueError too: no answer could repeat it.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _status(answer: Answer) -> int:
    error = answer.get("error")
    if error is None:
        return 200
    return STATUS.get(str(error["class"]), 502) if isinstance(error, Mapping) else 400


def _refused(status: int, said: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None  # noqa: PLR2004
    return JSONResponse({"status": "error", "error": said}, status, headers=headers)
