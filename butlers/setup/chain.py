"""Chains of migrations: the core's, and one for each module that has tables, each with its schema and its version."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.db.pool import Connection
from shared.errors import Misconfigured

VERSION_TABLE: Final = "SELECT to_regclass(format('%I.schema_version', $1::text)) IS NOT NULL"
READ_VERSION: Final = "SELECT format('SELECT version_num FROM %I.schema_version', $1::text)"


@dataclass(frozen=True, slots=True)
class Chain:
    """The revisions of the core (None), or of the module that names the schema; files' names begin with four digits."""

    module: str | None
    versions: Path

    @property
    def head(self) -> str:
        """Return the newest revision."""
        return max(path.name[:4] for path in self.versions.glob("[0-9]*.py"))

    @property
    def what(self) -> str:
        """Return what is brought from one revision to another, for a sentence."""
        return "database's schema" if self.module is None else f"schema of the module `{self.module}`"


async def version(connection: Connection, chain: Chain) -> str | None:
    """Return the revision a module's schema is at, or None if there is none yet."""
    if not await connection.fetchval(VERSION_TABLE, chain.module):
        return None
    found: str | None = await connection.fetchval(await connection.fetchval(READ_VERSION, chain.module))
    return found


async def demand(connection: Connection, chain: Chain) -> None:
    """Raise Misconfigured if the module's schema is not the one its code needs."""
    found = await version(connection, chain)
    if found != chain.head:
        raise Misconfigured(
            f"The {chain.what} is at {found or 'nothing'}, and it needs {chain.head}.", "Run `butlers migrate`."
        )
