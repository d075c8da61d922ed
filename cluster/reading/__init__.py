"""What is only read: answered out of the registry, under the asker's sight, in any process."""
