"""Runs the chain inside the connection that `butlers migrate` hands over, in its transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=None,
    version_table="schema_version",
    version_table_schema="public",
)
with context.begin_transaction():
    context.run_migrations()
