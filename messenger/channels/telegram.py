"""Telegram: one Bot API call whose last byte is held back, and what each answer proves.

Source: Bot API 10.0, "Making requests"; tdlib/telegram-bot-api answers 5xx also for calls it may still carry
out, so 5xx proves nothing, while 429 and other 4xx are given instead of acting.
"""

import json
import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp
from telegram import Bot, BotCommand, ReactionType

from messenger.channels.base import Prepared, Reason, Receipt, SendFailed, StillHeld, too_late, unconditionally
from messenger.channels.held_request import Answer, Broken, Connections, HeldRequest, Late
from shared.channels.base import Wire
from shared.channels.telegram import canonical
from shared.errors import ButlersError, Gone, InvalidInput, Misconfigured, TooLarge, Unavailable

_TOKEN = re.compile(r"[0-9A-Za-z:_-]{1,128}", re.ASCII)
_METHOD = re.compile(r"[A-Za-z]{1,64}", re.ASCII)
# Answers given instead of acting; 408 is not among them: a proxy may give up on a server that acts.
_SUCCESS = range(200, 300)
_TOO_MANY = frozenset({420, 429})
_REFUSED = frozenset(range(400, 500)) - {408} - _TOO_MANY
_UNKNOWN = frozenset({408, *range(500, 600)})
PROBE_SECONDS = 10.0
# What Bot API numbers can be at most: they fit a double without loss.
MAX_ID = 2**53
_HOST = re.compile(r"[0-9A-Za-z.:_-]+", re.ASCII)
_FILE_PATH = re.compile(r"(?!.*\.\.)[0-9A-Za-z_-][0-9A-Za-z_./-]{0,300}", re.ASCII)
LATER = "Try again in a minute."
LISTS = {"reaction": ReactionType.de_list, "commands": BotCommand.de_list}


class ProviderRefused(ButlersError):
    """A plain Bot API call gave no result; `failed` says why, `status` is the HTTP status or 0 without one."""

    code = "provider_rejected"

    def __init__(self, failed: SendFailed, status: int) -> None:
        super().__init__(failed.message)
        self.failed = failed
        self.status = status
        self.retryable = failed.reason not in {"provider_rejected", "unauthorized"}
        # Any other call would fail the same way: too many of them, no such bot, or nobody there.
        self.is_for_all = failed.reason in {"rate_limited", "unauthorized"} or failed.is_down


@dataclass(frozen=True, slots=True)
class TelegramPart:
    """One part of which Telegram lacks the last byte."""

    channel: "TelegramChannel"
    wire: Wire
    held: HeldRequest

    async def finish(self, still_held: StillHeld = unconditionally) -> Receipt | SendFailed:
        """Write the last byte if the lease still lasts right then, and read the answer."""
        return await self.channel.finish(self.wire, self.held, still_held)

    async def abandon(self) -> None:
        """Drop the connection: Telegram never gets the last byte."""
        self.held.abort()


class TelegramChannel:
    """The Bot API for one bot; holds the token, which no text, repr or log of it shows."""

    name = "telegram"

    def __init__(
        self,
        base_url: str,
        token: str,
        *,
        answer_timeout: float = 60,
        connect_timeout: float = 10,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Take an http(s) base URL without path, and the bot's token; `tls` replaces the default trust."""
        if not _TOKEN.fullmatch(token):
            raise Misconfigured(
                "The Telegram token is not valid.", "Copy it from @BotFather into BUTLERS_TELEGRAM_TOKEN."
            )
        self._base_url = _checked(base_url)
        self._token = token
        self._answer_timeout = answer_timeout
        self._connections = Connections(tls, connect_timeout)

    def __repr__(self) -> str:
        """Return where it talks to, without the token."""
        return f"TelegramChannel({self._base_url!r}, token=***)"

    async def prepare(self, wire: Wire) -> Prepared | SendFailed:
        """Write the whole request but its last byte; a SendFailed from here is proved not sent."""
        try:
            return TelegramPart(self, wire, await self._hold(wire.verb, json.loads(wire.body), wire.body))
        except Broken as broken:
            return self._failed(broken)

    async def finish(
        self, wire: Wire, held: HeldRequest, still_held: StillHeld = unconditionally
    ) -> Receipt | SendFailed:
        """Write the last byte of a held request and say what the answer proves."""
        try:
            answer = await held.finish(self._answer_timeout, still_held)
        except Late:
            return too_late()
        except Broken as broken:
            return self._failed(broken)
        outcome = judge(wire, answer)
        return outcome if isinstance(outcome, Receipt) else self._redacted(outcome)

    async def call(
        self, method: str, payload: Mapping[str, object], *, wait: float | None = None
    ) -> Mapping[str, object]:
        """Call any Bot API method and return the whole answer (`ok` is true); raise ProviderRefused if there is none.

        For long polling give a `wait` (seconds for the answer) above the poll's own.
        """
        try:
            # The library leaves out what is None.
            body = canonical({name: value for name, value in payload.items() if value is not None})
            held = await self._hold(method, payload, body)
            answer = await held.finish(self._answer_timeout if wait is None else wait)
        except Broken as broken:
            raise ProviderRefused(self._failed(broken), 0) from None
        document = _document(answer.body)
        if answer.status in _SUCCESS and document.get("ok") is True:
            return document
        raise ProviderRefused(self._redacted(_refusal(answer.status, document)), answer.status)

    async def file(self, file_id: str, most: int) -> bytes:
        """Return a file that somebody sent to the bot; raise Gone, TooLarge, or Unavailable if it cannot be had now."""
        try:
            found = (await self.call("getFile", {"file_id": file_id})).get("result")
        except ProviderRefused as refused:
            if refused.failed.reason != "provider_rejected":
                raise Unavailable(f"Telegram does not hand out files now: {refused.message}", LATER) from None
            raise (TooLarge() if "too big" in refused.message else Gone("Telegram")) from None
        path = found.get("file_path") if isinstance(found, Mapping) else None
        # INVARIANT: what a server says of a path can name nothing but one of its files.
        if not isinstance(path, str) or not _FILE_PATH.fullmatch(path):
            raise Unavailable("Telegram names no file.", LATER)
        url = f"{self._base_url}/file/bot{self._token}/{path}"
        try:
            status, body = await self._connections.get(url, most)
        except (aiohttp.ClientError, OSError) as lost:  # whose own words quote the URL, and with it the token
            raise Unavailable(f"Telegram cannot be reached ({type(lost).__name__}).", LATER) from None
        if status == HTTPStatus.NOT_FOUND:
            raise Gone("Telegram")
        if status != HTTPStatus.OK:
            raise Unavailable(f"Telegram does not hand out the file (HTTP {status}).", LATER)
        return body

    async def probe(self) -> SendFailed | None:
        """Ask by getMe whether the Bot API answers to this token; return None if it does."""
        try:
            await self.call("getMe", {}, wait=PROBE_SECONDS)
        except ProviderRefused as refused:
            return refused.failed
        return None

    async def close(self) -> None:
        """Close every kept connection."""
        await self._connections.close()

    async def _hold(self, method: str, fields: Mapping[str, object], body: bytes) -> HeldRequest:
        """Let python-telegram-bot make the call, up to the last byte of exactly this body; raise Broken."""
        held = HeldRequest(self._connections, body)
        bot = Bot(self._token, self._url_of, request=held, get_updates_request=held)
        ask = getattr(bot, method, None) if _METHOD.fullmatch(method) else None
        if ask is None:
            raise InvalidInput("This is no Bot API method.", "Use a name like sendMessage.")
        await held.begin(ask(**_typed(fields)))
        return held

    def _url_of(self, token: str) -> str:
        return f"{self._base_url}/bot{token}"

    def _failed(self, broken: Broken) -> SendFailed:
        proved = broken.proved_not_sent
        return self._redacted(SendFailed(broken.reason, broken.message, proved_not_sent=proved, is_down=proved))

    def _redacted(self, failed: SendFailed) -> SendFailed:
        """Take the token out of the message: even a server's or a library's own words may quote the URL."""
        return replace(failed, message=failed.message.replace(self._token, "***"))


def _checked(base_url: str) -> str:
    """Return what stands before /bot<token>."""
    remedy = "Set BUTLERS_TELEGRAM_BASE_URL like https://api.telegram.org."
    try:
        parts = urlsplit(base_url)
        _ = parts.port, {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        raise Misconfigured("The Telegram base URL is not an http or https URL.", remedy) from None
    host = parts.hostname or ""
    if not _HOST.fullmatch(host) or parts.username or parts.query or parts.fragment or not parts.path.isascii():
        raise Misconfigured("The Telegram base URL must consist of a host and a port only.", remedy)
    if any(character <= " " for character in parts.path):
        raise Misconfigured("The Telegram base URL contains a space.", remedy)
    return base_url.rstrip("/")


def _typed(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields as the library takes them: it looks into a reaction and a menu, and into nothing else."""
    made = dict(fields)
    for name, listed in LISTS.items():
        value = fields.get(name)
        if isinstance(value, list):
            made[name] = listed(value)
    return made


def judge(wire: Wire, answer: Answer) -> Receipt | SendFailed:
    """Return what an answer to this wire proves.

    An early answer came without our last byte: unless it is a receipt, nothing was sent whatever it says.
    """
    document = _document(answer.body)
    if answer.status in _SUCCESS and document.get("ok") is True:
        provider_id = _provider_id(wire, document.get("result"))
        outcome = Receipt(provider_id) if provider_id else _unreadable("The answer names no message.")
    else:
        outcome = _refusal(answer.status, document)
    if answer.early and isinstance(outcome, SendFailed) and not outcome.proved_not_sent:
        return SendFailed("unavailable", outcome.message, proved_not_sent=True)
    return outcome


def _provider_id(wire: Wire, result: object) -> str:
    """Return the receipt in a result: the message_id, or for a reaction what was set where; "" if there is none."""
    if wire.verb == "setMessageReaction" and result is True:
        asked = json.loads(wire.body)
        return f"{asked['chat_id']}:{asked['message_id']}:{asked['reaction'][0]['emoji']}"
    number = result.get("message_id") if isinstance(result, Mapping) else None
    # 0 is legal for "scheduled, not sent yet": no receipt. True is an int to Python, not to us.
    return str(number) if isinstance(number, int) and number is not True and 0 < number <= MAX_ID else ""


def _document(body: bytes) -> Mapping[str, object]:
    """Return the JSON object of an answer, or an empty one."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _refusal(status: int, document: Mapping[str, object]) -> SendFailed:
    """Return what a status other than success proves; contradictions prove nothing."""
    if document.get("ok") is True:
        return _unreadable(f"HTTP {status} without a result.")
    code = document.get("error_code")
    if status in _SUCCESS and document.get("ok") is False and isinstance(code, int):
        status = code
    said = document.get("description")
    message = said if isinstance(said, str) and said else f"HTTP {status}."
    if (moved := _parameter(document, "migrate_to_chat_id")) is not None:
        message = f"{message} Its number is {moved} now."
    if status in _TOO_MANY:
        return SendFailed("rate_limited", message, proved_not_sent=True, retry_after=_retry_after(document))
    if status in _REFUSED:
        return SendFailed(_why_refused(status, message), message, proved_not_sent=True)
    if status in _UNKNOWN:
        gave_up = status == HTTPStatus.REQUEST_TIMEOUT
        return SendFailed("timeout" if gave_up else "server_error", message, proved_not_sent=False)
    return _unreadable("The answer is not the Bot API's.")


def _why_refused(status: int, message: str) -> Reason:
    """Return why a call was refused.

    It is unauthorized for a token revoked (401) or never valid (404 "Not Found"), else the message's own fault.
    """
    unknown_token = status == HTTPStatus.NOT_FOUND and message.startswith(("Not Found", "HTTP 404"))
    return "unauthorized" if unknown_token or status == HTTPStatus.UNAUTHORIZED else "provider_rejected"


def _retry_after(document: Mapping[str, object]) -> float | None:
    """Return the seconds Telegram asks for, as they are; None without a number."""
    asked = _parameter(document, "retry_after")
    if asked is None:
        return None
    try:
        seconds = float(asked)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def _parameter(document: Mapping[str, object], name: str) -> int | float | None:
    """Return a number that Telegram gives with a refusal (core.telegram.org/bots/api#responseparameters)."""
    parameters = document.get("parameters")
    given = parameters.get(name) if isinstance(parameters, Mapping) else None
    return given if isinstance(given, int | float) and not isinstance(given, bool) else None


def _unreadable(message: str) -> SendFailed:
    return SendFailed("unreadable", message, proved_not_sent=False)


Call = tuple[str, Mapping[str, object]]
