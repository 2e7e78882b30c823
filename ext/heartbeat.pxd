"""Heartbeat (key 12) of members that are known to be well, answered where it was read.

    v0-3: group id string, generation i32, member id string, from v3 group instance id nullable
    v4:   the same, compact, and tagged fields
What the table of pulses does not answer, and what cannot be read, goes to the coordinator, so that
every error has one place. A connection is not read while a request of it is with the control
thread: what it sent before this has taken effect. Nobody is authorised here, as groups are not.
"""
from kbroker.ext.connection cimport Request

cdef int handle_heartbeat(Request* request) noexcept nogil
