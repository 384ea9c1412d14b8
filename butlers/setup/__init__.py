"""Steps that are done once: schema, roles, keys, logins."""
