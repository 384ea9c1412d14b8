"""Which targets a route may have, and in whose name. Pure."""

from typing import Final

from shared.contracts import NotifyEnvelope, RouteEnvelope
from shared.errors import Forbidden, InvalidInput

ROUTABLE: Final = frozenset({("messenger", "route.execute")})


def demand_routable(route: RouteEnvelope) -> None:
    """Raise InvalidInput unless the route names a daemon and tool that may be reached through the Switchboard."""
    if (route.target.butler, route.target.tool) not in ROUTABLE:
        raise InvalidInput(
            f"`{route.target.tool}` of `{route.target.butler}` cannot be reached through the Switchboard.",
            "Notifications go to messenger, route.execute.",
        )


def notify_request(route: RouteEnvelope) -> NotifyEnvelope:
    """Return the notify.v1 envelope inside a route; raise InvalidInput or pydantic's ValidationError."""
    found = (route.input.context or {}).get("notify_request")
    if found is None:
        raise InvalidInput("The route has no notify_request.", "Put it at input.context.notify_request.")
    return NotifyEnvelope.model_validate(found)


def demand_own_origin(envelope: NotifyEnvelope, caller: str) -> None:
    """Raise Forbidden unless the origin is the verified caller: nobody speaks in another's name."""
    if envelope.origin_butler != caller:
        raise Forbidden(f"{caller} cannot send as {envelope.origin_butler}.")
