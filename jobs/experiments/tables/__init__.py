"""The tables of the field, one file each."""
