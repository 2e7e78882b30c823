"""What the handlers of the data plane share: hangs on `Net.broker`."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.compression cimport CODEC_MAX
from kbroker.ext.connection cimport Net
from kbroker.ext.journal cimport Journal
from kbroker.ext.registry cimport Registry
from kbroker.ext.sessions cimport SessionCache

ctypedef struct Broker:
    Registry registry
    Journal* journal                # NULL: durability=page-cache
    SessionCache sessions
    int32_t node_id
    int32_t fetch_bytes_max         # fetch.max.bytes
    int32_t told_codecs[CODEC_MAX + 1]      # atomic; 1: that its library is missing was logged

cdef inline Broker* broker_of(Net* net) noexcept nogil:
    return <Broker*>net.broker
