"""Read-only requests: answered from the registry, in any process, as the requester may see it."""
