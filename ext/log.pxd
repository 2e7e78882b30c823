"""Python API of a log.

Data-plane modules cimport log_state, log_append, log_read, log_find, log_flush, log_recovery and
log_retention; the engine takes the struct out of this class.
"""
from kbroker.ext.log_recovery cimport OpenReport
from kbroker.ext.log_state cimport Log as LogStruct
from kbroker.ext.log_state cimport LogConfig

cdef class Log:
    cdef LogStruct* core                # one reference, held until the object dies
    cdef OpenReport report

# Convert the settings of a log. Every key is required: a missing one raises KeyError.
cdef int fill_config(LogConfig* cfg, dict given) except -1
