"""What people's programs call."""
