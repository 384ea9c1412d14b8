"""Running a script of several statements, which a prepared statement cannot hold.

Where the group roles can be made, scripts run as they stand. Where everything runs under one role, what a script says
of the groups is said of that role, which owns all it makes.
"""

import re
from typing import Final

from alembic import context

# In `context.config.attributes`: the role under which everything runs, absent where each daemon has a login.
ONE_ROLE: Final = "one_role"
_MAKES_GROUPS: Final = re.compile(r"\bCREATE ROLE\b")
_MEMBER: Final = re.compile(r"pg_has_role\(current_user, 'butlers_group_(\w+)', '(?:MEMBER|USAGE)'\)")
_REVOKED: Final = re.compile(r"\bREVOKE\b[^;]*\bbutlers_group_[^;]*;")


def one_role() -> str | None:
    """Return the role under which everything runs, or None where each daemon has a login."""
    found: str | None = context.config.attributes.get(ONE_ROLE)
    return found


def for_one_role(script: str, role: str) -> str:
    """Put that role in the place of every group in the script.

    A group is not made. Who is asked whether they belong to one is asked for their name. What a group loses the role
    keeps, since as the owner it would lose it for all.
    """
    if _MAKES_GROUPS.search(script):
        return ""
    script = _REVOKED.sub("", _MEMBER.sub(r"shared.me() = '\1'", script))
    literal, identifier = role.replace("'", "''"), role.replace('"', '""')
    script = re.sub(r"'butlers_group_\w+'", lambda _: f"'{literal}'", script)
    return re.sub(r"\bbutlers_group_\w+", lambda _: f'"{identifier}"', script)


def execute(script: str) -> None:
    """Run the script in the migration's own transaction."""
    role = one_role()
    if role is not None:
        script = for_one_role(script, role)
    if not script:
        return
    dbapi = context.config.attributes["connection"].connection.dbapi_connection
    assert dbapi is not None  # noqa: S101  # a migration has its connection
    dbapi.run_async(lambda connection: connection.execute(script))
