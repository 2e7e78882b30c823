"""Members of consumer groups in processes of their own, one program for each library.

They are told to leave by SIGTERM, may be killed at any moment, and write what they do to history
files, which outlive them and the broker.
"""
