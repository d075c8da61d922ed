"""The loop, its penalties, optimizer and engines; refresh."""
