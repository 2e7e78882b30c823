"""A request of the control lane, as the control thread sees it."""
from kbroker.ext.connection cimport Job

cdef class Request:
    cdef Job* job                   # NULL once answered
    cdef object owner               # the engine: its threads must outlive the job
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int correlation_id
    cdef readonly object client_id
    cdef readonly bytes body
    cdef readonly str listener
    cdef readonly tuple peer
    cdef readonly object connection_id
    cdef readonly object received_ns
    cdef readonly int principal
    cdef readonly bint open         # its connection was in STAGE_OPEN
    cdef readonly bytes state       # what `remember` was given last on this connection
    cdef readonly tuple software    # name and version, of APIs that ask for it; "": not known
    cdef list places                # of partitions that open a transaction
    cdef list opened
    cdef Job* sets_of(self) except NULL

# Takes over the job.
cdef Request request_from_job(Job* job, object owner)
