"""The demo: the whole story on embedded data."""
