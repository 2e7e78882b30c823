"""ApiVersions, answered from bodies that the control plane pushed down ahead.

Any client must be able to begin with it: an unknown version is answered in version 0, with
UNSUPPORTED_VERSION and the versions of this one API (KIP-511); the response header is always v0.
"""
from libc.stdint cimport int32_t, uint8_t, uint32_t

from kbroker.ext.connection cimport Net, Request

cdef int api_versions_handle(Request* request) noexcept nogil
# Copies the body; replaces the one of that version. 0, or -1 (no memory, no such version).
cdef int api_versions_put(Net* net, int32_t version, const uint8_t* body,
                          uint32_t length) noexcept nogil
# Frees the bodies that were replaced; net_synchronize came between.
cdef void api_versions_reclaim(Net* net) noexcept nogil
cdef void api_versions_destroy(Net* net) noexcept nogil
