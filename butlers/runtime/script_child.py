"""The process of a session that plays a script; it has the standard library alone, and is run by its path.

On standard input it gets one JSON object, with the steps and where its butler is; each line that it prints is a JSON
object with one event.
"""

import http.client
import json
import re
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

PROTOCOL = "2026-07-28"
MOST_ANSWER = 10_000_000
PATIENCE = 120
NAMED = re.compile(r"\$\{([^{}]*)\}")
Caller: TypeAlias = Callable[[str, Mapping[str, object]], object]


class Wrong(Exception):
    """What ends a script, as one sentence."""

    outcome = "failed"


class Limit(Wrong):
    """The last turn is over, and a step would need one more."""

    outcome = "limit"


def main() -> None:
    """Play the script, and say how it ended."""
    job = json.load(sys.stdin)
    token = Path(job["token_file"]).read_text(encoding="utf-8").strip()

    def call(tool: str, arguments: Mapping[str, object]) -> object:
        return called(job["url"], token, tool, arguments)

    try:
        last = play(job["steps"], {"prompt": job["prompt"]}, job["turns"], call)
    except Wrong as wrong:
        say(ended=wrong.outcome, text=str(wrong))
    else:
        say(ended="done", text=last)


def play(steps: Sequence[Mapping[str, object]], known: dict[str, object], turns: int, call: Caller) -> str:
    """Take the steps one after the other; return the last words."""
    used, last = 0, ""
    for step in steps:
        match step:
            case {"call": str(tool)}:
                if used == turns:
                    raise Limit(f"The session reached its limit of {turns} turns.")
                arguments = filled(step.get("arguments") or {}, known)
                used += 1
                say(called=tool)
                answer = call(tool, arguments)  # type: ignore[arg-type]  # a table stays one
                known[str(step.get("keep") or tool)] = answer
                say(used=[used, 0, 0])
            case {"say": str(text)}:
                last = str(text_of(filled(text, known)))
                say(said=last)
            case {"wait": int() | float() as seconds}:
                time.sleep(seconds)
    return last


def filled(value: object, known: Mapping[str, object]) -> object:
    """Put what is known in the place of each `${...}`; a text that is nothing else becomes the value itself."""
    match value:
        case str():
            if whole := NAMED.fullmatch(value):
                return looked_up(whole[1], known)
            return NAMED.sub(lambda found: text_of(looked_up(found[1], known)), value)
        case dict():
            return {key: filled(one, known) for key, one in value.items()}
        case list():
            return [filled(one, known) for one in value]
        case _:
            return value


def looked_up(path: str, known: object) -> object:
    """Find `name.key.0` in what is known."""
    found = known
    for word in path.split("."):
        match found:
            case dict() if word in found:
                found = found[word]
            case list() if word.isdecimal() and int(word) < len(found):
                found = found[int(word)]
            case _:
                raise Wrong(f"The script names `${{{path}}}`, and no earlier answer has that.")
    return found


def text_of(value: object) -> str:
    """Write a value into a sentence."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def called(url: str, token: str, tool: str, arguments: Mapping[str, object]) -> object:
    """Call a tool by one self-contained request (MCP 2026-07-28); return its object, or its texts."""
    meta = {"io.modelcontextprotocol/protocolVersion": PROTOCOL, "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": PROTOCOL,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    try:
        message = posted(url, headers, body)
    except (OSError, http.client.HTTPException, ValueError) as lost:
        raise Wrong(f"The call of `{tool}` was lost: {type(lost).__name__}.") from None
    error = message.get("error")
    if isinstance(error, dict):
        raise Wrong(f"`{tool}` was refused: {error.get('message')}")
    result = message.get("result")
    if not isinstance(result, dict):
        raise Wrong(f"`{tool}` was answered with something else than a result.")
    texts = "\n".join(str(one.get("text")) for one in result.get("content") or () if one.get("type") == "text")
    if result.get("isError"):
        # The first text is the sentence for people; what follows says the same to programs.
        raise Wrong(f"`{tool}` failed: {texts.partition(chr(10))[0]}")
    return result.get("structuredContent") or texts


def posted(url: str, headers: Mapping[str, str], body: str) -> Mapping[str, object]:
    """Send one request; return the JSON-RPC message that answers it."""
    where = urlsplit(url)
    with closing(connection(where.scheme, where.netloc)) as to:
        to.request("POST", where.path or "/", body.encode("utf-8", "replace"), dict(headers))
        answer = to.getresponse()
        if answer.status in {401, 403}:
            return {"error": {"message": f"the butler does not take this session's token ({answer.status})."}}
        raw = answer.read(MOST_ANSWER).decode("utf-8")
        if "event-stream" not in answer.headers.get("Content-Type", ""):
            found = [json.loads(raw)]
        else:
            found = [json.loads(line[5:]) for line in raw.splitlines() if line.startswith("data:")]
    # A message with an id and no method answers; all others tell of progress.
    answers = [one for one in found if isinstance(one, dict) and "method" not in one]
    return answers[-1] if answers else {}


def connection(scheme: str, netloc: str) -> http.client.HTTPConnection:
    """Return a connection to the butler."""
    if scheme == "https":
        return http.client.HTTPSConnection(netloc, timeout=PATIENCE, context=ssl.create_default_context())
    return http.client.HTTPConnection(netloc, timeout=PATIENCE)


def say(**event: object) -> None:
    """Print one event."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
