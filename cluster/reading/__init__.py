"""What is only read: answered out of the registry, as far as the asker may see, in any process."""
