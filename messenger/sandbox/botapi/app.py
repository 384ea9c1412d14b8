"""The HTTP edge of the Bot API: `/bot<token>/<method>`, its bodies, its answers and its faults."""

import asyncio
import json
import re
from collections.abc import Mapping
from urllib.parse import unquote_plus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import Receive, Scope, Send

from messenger.sandbox.botapi.checks import Params, Refused, bad, decoded
from messenger.sandbox.botapi.methods import FOLDER, METHODS, Call
from messenger.sandbox.botapi.updates import Pollers
from messenger.sandbox.connections import connection_of, gone, reset, until
from messenger.sandbox.faults import TELEGRAM_FAULTS, Fault
from messenger.sandbox.sandbox import Sandbox
from shared.errors import InvalidInput

TOKEN = re.compile(r"([0-9]{1,18}):[A-Za-z0-9_-]+")
# Several times the longest message, with its keyboard, in the widest spelling.
LARGEST_BODY = 256 * 1024
LONGEST_HANG = 120.0
BEFORE_BODY = frozenset({"drop_before_body"})
AFTER_BODY = TELEGRAM_FAULTS - BEFORE_BODY
REFUSALS = {
    "400": Refused(400, "Bad Request: chat not found"),
    "401": Refused(401, "Unauthorized"),
    "403": Refused(403, "Forbidden: bot was blocked by the user"),
    "500": Refused(500, "Internal Server Error"),
}
BAD_GATEWAY = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


class BotApi:
    """An ASGI app for one sandbox; it acts on a call only when the whole body is there."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._pollers = Pollers(sandbox)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call, or cut its connection as a fault says."""
        request = Request(scope, receive)
        method = str(scope["path_params"]["method"])
        try:
            body = await self._body(request, method)
        except ClientDisconnect:
            return
        if body is None:
            connection_of(receive).abort()
            await gone(receive)
            return
        response = await self._answer(request, method, receive)
        if response is not None:
            await response(scope, receive, send)

    async def _body(self, request: Request, method: str) -> bytes | None:
        """Return the whole body; None when the connection shall be cut before anything is done."""
        faults = self._sandbox.faults
        by_text = faults.wants_text("telegram", method, "drop_before_body")
        if not by_text and faults.take("telegram", method, "", BEFORE_BODY):
            return None
        parts = bytearray()
        async for chunk in request.stream():
            parts += chunk
            if by_text and faults.take("telegram", method, unquote_plus(parts.decode(errors="replace")), BEFORE_BODY):
                return None
            if len(parts) > LARGEST_BODY:
                break
        body = bytes(parts)
        request._body = body  # noqa: SLF001 - Starlette's own way to read a form after the body
        return body

    async def _answer(self, request: Request, method: str, receive: Receive) -> Response | None:
        try:
            token_id = _token_id(str(request.path_params["token"]))
            params = decoded(await _parameters(request))
            to = str(params.get("chat_id", ""))
            fault = self._sandbox.faults.take("telegram", method, _text(params), AFTER_BODY, to=to)
            if fault is not None and fault.fault in ("429", "400", "401", "403", "500", "502"):
                return _refusal(fault)
            result = await self._run(token_id, method, params, receive)
        except Refused as refused:
            return _not_ok(refused)
        except InvalidInput as full:
            return _not_ok(bad(str(full)))
        except ClientDisconnect:
            return None
        response = JSONResponse({"ok": True, "result": result})
        return response if fault is None else await self._spoilt(fault, response, receive)

    async def _run(self, token_id: str, method: str, params: Params, receive: Receive) -> object:
        if method == "getUpdates":
            poll = asyncio.create_task(self._pollers.get_updates(token_id, params))
            if not await until(receive, poll):
                raise ClientDisconnect
            return poll.result()
        handler = METHODS.get(method)
        if handler is None:
            raise Refused(404, "Not Found: method not found")
        return handler(Call(self._sandbox, token_id, params))

    async def _spoilt(self, fault: Fault, response: Response, receive: Receive) -> Response | None:
        """Return what the client sees although its call was accepted; None for no answer at all."""
        match fault.fault:
            case "slow":
                await self._pause(receive, fault.value)
                return response
            case "garbage":
                cut = bytes(response.body)[: max(len(response.body) // 2, 1)]
                return Response(cut, media_type="application/json")
            case "500_accepted":
                return _not_ok(REFUSALS["500"])
            case "accept_hang":
                await self._pause(receive, LONGEST_HANG)
        reset(connection_of(receive))
        await gone(receive)
        return None

    async def _pause(self, receive: Receive, seconds: float) -> None:
        stopped = asyncio.create_task(self._sandbox.stopping.wait())
        await until(receive, stopped, seconds)


async def download(request: Request) -> Response:
    """Hand out a file that a person sent, by the path that getFile returned."""
    sandbox: Sandbox = request.app.state.sandbox
    try:
        _token_id(str(request.path_params["token"]))
    except Refused as refused:
        return _not_ok(refused)
    folder, _, file_id = str(request.path_params["path"]).partition("/")
    body = sandbox.world.files.get(file_id) if folder == FOLDER else None
    return _not_ok(Refused(404, "Not Found")) if body is None else Response(body, media_type="application/octet-stream")


def _token_id(token: str) -> str:
    found = TOKEN.fullmatch(token)
    if found is None:
        raise Refused(404, "Not Found")
    return found[1]


async def _parameters(request: Request) -> dict[str, object]:
    body = await request.body()
    if len(body) > LARGEST_BODY:
        raise Refused(413, "Request Entity Too Large")
    params: dict[str, object] = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        params.update(_json_object(body))
    elif body:
        async with request.form() as form:
            params.update({name: value for name, value in form.items() if isinstance(value, str)})
    return params


def _json_object(body: bytes) -> Mapping[str, object]:
    try:
        given = json.loads(body or b"{}")
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise bad("can't parse JSON object")
    return given


def _text(params: Params) -> str:
    text = params.get("text")
    if isinstance(text, str):
        return text
    reaction = params.get("reaction")
    return json.dumps(reaction, ensure_ascii=False) if reaction else ""


def _refusal(fault: Fault) -> Response:
    if fault.fault == "502":
        return HTMLResponse(BAD_GATEWAY, status_code=502)
    if fault.fault == "429":
        seconds = int(fault.value)
        return _not_ok(Refused(429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds}))
    return _not_ok(REFUSALS[fault.fault])


def _not_ok(refused: Refused) -> Response:
    shape: dict[str, object] = {"ok": False, "error_code": refused.code, "description": refused.description}
    if refused.parameters is not None:
        shape["parameters"] = dict(refused.parameters)
    return JSONResponse(shape, status_code=refused.code)
