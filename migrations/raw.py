"""Running a script of several statements, which a prepared statement cannot hold."""

from alembic import op


def execute(script: str) -> None:
    """Run the script as it stands in the migration's own transaction."""
    dbapi = op.get_bind().connection.dbapi_connection
    assert dbapi is not None  # noqa: S101  # a migration has its connection
    dbapi.run_async(lambda connection: connection.execute(script))
