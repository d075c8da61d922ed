"""What people see: tables, progress, plots."""
