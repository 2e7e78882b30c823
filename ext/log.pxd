"""Python's face of a log. Data-plane modules cimport log_state, log_append, log_read, log_recovery,
log_retention."""

from kbroker.ext.log_state cimport Log as LogStruct

cdef class Log:
    cdef LogStruct* core                # one reference, held until the object dies
