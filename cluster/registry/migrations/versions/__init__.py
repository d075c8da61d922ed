"""One file for each change of the tables, forward only. What was applied is never edited."""
