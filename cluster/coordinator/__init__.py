"""The shell that carries decisions out; the only writer of the registry."""
