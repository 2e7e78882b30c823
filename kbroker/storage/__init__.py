"""Log directories: their files, and what happens to logs over time."""
