"""Care of data directories: backups of live brokers, restored and read by others."""
