"""What the console's pages are made of: words of others stay words, and no page holds more than its policy allows."""

import json
import re
import unicodedata
from html.parser import HTMLParser
from urllib.parse import quote

from butlers.console.middleware import HEADERS
from butlers.console.templating import FOLDER
from tests.integration.console_runner import Running
from tests.integration.peopled import peopled

# What a person may write into a message, a name or an address to make a page say something else.
NASTY = (
    "<script>alert(1)</script>",
    "</div></main><h1>Approved</h1>",
    "<img src=x onerror=alert(1)>",
    '" autofocus onfocus="alert(1)',
    "' onmouseover='alert(1)",
    "<svg/onload=alert(1)>",
    "<a href='javascript:alert(1)'>yes</a>",
    "javascript:alert(1)",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=https://evil.test'>",
    "<form action=https://evil.test><button>Approve",
    "<base href=https://evil.test>",
    "<iframe src=https://evil.test>",
    "<!-- ",
    "]]><![CDATA[",
    "&lt;b&gt; &amp; &#60;i&#62;",
    "{{ csrf }} {% include 'base.html' %}",
    "\u202eevil\u202c \u2066x\u2069 \u200fabc",
    "zero\u200bwidth\u200d\u2060\ufeff",
    "\x1b[31mred\x1b[0m \x07 \x00".replace("\x00", "\x01"),
    "line\u2028separator\u2029",
    "soft\u00adhyphen \u180e \u061c",
    "\U000e0041\U000e0042 tags",
    "\n" * 300 + "what is really asked",
    "https://evil.test/%3Cscript%3E",
    "Z\u0335\u0321a\u0334l\u0337g\u0336o" * 20,
)
TAGS = frozenset(
    {"html", "head", "meta", "title", "link", "script", "noscript", "body", "a", "header", "div", "img", "span", "nav"}
    | {"main", "form", "input", "button", "h1", "h2", "p", "section", "ul", "ol", "li", "article", "footer", "label"}
    | {"strong", "details", "summary", "textarea", "select", "option", "dl", "dt", "dd", "code", "time", "blockquote"}
)
# The one address on a page that is not the console's own.
SANDBOX = "http://127.0.0.1:14103/"


class Parts(HTMLParser):
    """The tags and attributes of a page as a browser sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))


async def test_words_of_others_are_words_on_every_page(console: Running) -> None:
    ids = await peopled(console, NASTY[0])
    actions = [await console.park(butler="calendar", message=words, summary=words, subject=words) for words in NASTY]
    contacts = []
    for words in NASTY:
        made = "INSERT INTO shared.contacts (name, roles) VALUES ($1, '{}') RETURNING id::text"
        contacts.append(await console.sql.fetchval(made, words[:150]))
        rule = "INSERT INTO shared.approval_rules (arg_constraints, description) VALUES ($1, $2)"
        await console.sql.execute(rule, json.dumps({"recipient": words, "contact_id": contacts[-1]}), words)
        brake = "INSERT INTO shared.brakes (contact_id) VALUES ($1::text::uuid)"
        await console.sql.execute(brake, contacts[-1])
    await console.sign_in()
    pages = [*ids.pages(), *(f"/approvals/{one}" for one in actions), *(f"/contacts/{one}" for one in contacts)]
    pages += [f"/rules?recipient={quote(words)}&effect={quote(words)}" for words in NASTY]
    for path in pages:
        answer = await console.get(path)
        html, parts = await answer.text(), Parts()
        assert answer.status == 200, path
        parts.feed(html)
        assert {tag for tag, _ in parts.tags} <= TAGS, path
        for tag, attributes in parts.tags:
            assert not [name for name in attributes if name.startswith("on") or name == "style"], (path, tag)
            where = attributes.get("href") or attributes.get("src") or attributes.get("action") or "/"
            assert where == SANDBOX or where.startswith(("/", "#")), (path, where)
            assert tag != "meta" or "http-equiv" not in attributes or attributes["content"] in {"2", "30"}, path
        hidden = {char for char in html if unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"}} - {"\n"}
        if not path.startswith("/rules?"):  # there they are what the owner's own form holds
            assert hidden == set(), (path, hidden)


def test_no_template_holds_a_script_a_style_or_a_form_without_its_token() -> None:
    templates = {path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "templates").glob("*.html")}
    assert len(templates) >= 15
    for name, text in templates.items():
        for wrong in (r"<style", r"\sstyle=", r"\son\w+=", r"<script(?! src=\"/static/)", r"javascript:", r"\|\s*safe"):
            assert not re.search(wrong, text), (name, wrong)
        assert "autoescape" not in text, name
        for form in re.findall(r'<form[^>]*method="post"[^>]*>.*?(?:</form>|endmacro)', text, re.DOTALL):
            assert 'action="/sign-in"' in form or 'name="csrf" value="{{ csrf }}"' in form, (name, form[:80])
    script = (FOLDER / "static" / "live.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|eval\(|document\.write|new Function", script)


async def test_each_page_forbids_framing_scripts_and_keeping(console: Running) -> None:
    ids = await peopled(console)
    await console.sign_in()
    answers = [await console.get(path) for path in (*ids.pages(), "/confirm", "/nothing", "/rules/x")]
    answers.append(await console.post("/rules", csrf="x"))
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers.getall(name) == [value], (answer.url, name)
        assert answer.headers.getall("Cache-Control") == ["no-store"]
        assert "Server" not in answer.headers or "uvicorn" in answer.headers["Server"]
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {"'self'"}
    assert HEADERS["X-Frame-Options"] == "DENY"
    assert HEADERS["X-Content-Type-Options"] == "nosniff"
    assert HEADERS["Cross-Origin-Opener-Policy"] == HEADERS["Cross-Origin-Resource-Policy"] == "same-origin"
    assert HEADERS["Referrer-Policy"] == "same-origin"
