"""Runs a chain, the core's or a module's, in the connection and transaction that `butlers migrate` hands over."""

from alembic import context

from migrations.module_rights import grant, make_schema

module: str | None = context.config.attributes.get("module")
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=None,
    version_table="schema_version",
    version_table_schema=module or "public",
)
with context.begin_transaction():
    if module is not None:
        make_schema(module)
    context.run_migrations()
    if module is not None:
        grant()
