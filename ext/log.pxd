"""Python's face of a log.

Data-plane modules cimport log_state, log_append, log_read, log_find, log_flush, log_recovery and
log_retention; the engine takes the struct out of this class.
"""
from kbroker.ext.log_state cimport Log as LogStruct

cdef class Log:
    cdef LogStruct* core                # one reference, held until the object dies
    cdef readonly dict recovery         # what opening found: see OpenReport
