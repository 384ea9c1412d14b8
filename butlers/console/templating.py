"""Responses made of a template and values; every error page has two sentences and no more."""

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from shared.channels import CHANNELS

FOLDER: Final = Path(__file__).parent
# The pages there are, in the order of the navigation: address and name.
NAVIGATION: Final = (
    ("/", "Start"),
    ("/approvals", "Approvals"),
    ("/deliveries", "Deliveries"),
    ("/contacts", "Contacts"),
    ("/rules", "Rules"),
    ("/audit", "Audit"),
    ("/settings", "Settings"),
)
_TITLES: Final = {
    403: "Not allowed",
    404: "Not found",
    421: "Wrong address",
    429: "Too many attempts",
    500: "Something went wrong",
    503: "Not available",
}


# A template is compiled when it is first shown, once in a process.
_TEMPLATES: Final = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals["navigation"] = NAVIGATION
_TEMPLATES.globals["channels"] = CHANNELS


def render_page(name: str, *, status: int = 200, csrf: str = "", **values: object) -> HTMLResponse:
    """Render one page; `csrf` is the token of the signed-in session, empty before sign-in."""
    text = _TEMPLATES.get_template(name).render(csrf=csrf, **values)
    return HTMLResponse(text, status_code=status)


def render_error(status: int, message: str, remedy: str) -> HTMLResponse:
    """Render an error page: what is wrong and what to do."""
    title = _TITLES.get(status, "That did not work")
    return render_page("error.html", status=status, title=title, message=message, remedy=remedy)
