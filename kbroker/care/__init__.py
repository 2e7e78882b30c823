"""Care of data directories from outside: segment files checked and mended, backups made and
restored. For tools; the broker loads nothing of it. What writes into a partition's folder is the
broker's own log (`kbroker.ext.log`); here it is decided what, and told before.
"""
