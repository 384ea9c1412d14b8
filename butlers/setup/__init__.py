"""What is done once: schema, roles, keys, logins."""
