"""The client that programs call."""
