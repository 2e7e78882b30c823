"""Metrics: the list of them, their text forms, and what is generated from the list.

Pure: nothing here looks at a broker. kbroker.server.observe does, and fills in the values.
"""
