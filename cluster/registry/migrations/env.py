"""Alembic runs this file; `cluster.registry.migrating` gave it the transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
context.run_migrations()
