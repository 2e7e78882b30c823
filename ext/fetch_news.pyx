"""Sessions: what the client knows already (see fetch_news.pxd)."""
from libc.stdint cimport uint32_t

from kbroker.ext.error_codes cimport NONE
from kbroker.ext.fetch_state cimport partition_drop_read
from kbroker.ext.fetch_wire cimport FetchPartition
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.sessions cimport (
    SESSIONLESS_ID,
    Session,
    SessionPartition,
    session_create,
    session_get,
    session_put,
    session_remove,
    session_to_the_end,
    session_unref,
)


cdef bint update_cached(Session* session, FetchPartition* partition,
                        SessionPartition* cached) noexcept nogil:
    """Note what the client is told now. True when it is anything new."""
    cdef bint news = partition.slice.length > 0 or partition.diverging_epoch >= 0
    if cached.high_watermark != partition.high_watermark:
        cached.high_watermark = partition.high_watermark
        news = True
    if cached.log_start != partition.log_start:
        cached.log_start = partition.log_start
        news = True
    if partition.log != NULL:
        cached.target.known = True
    if partition.error != NONE:
        cached.high_watermark = -1      # so that its end is told, too
        news = True
    if partition.slice.length > 0:
        session_to_the_end(session, cached)
    return news


cdef void select_news(Fetch* fetch) noexcept nogil:
    cdef Session* session = fetch.session
    cdef FetchPartition* partition
    cdef SessionPartition* cached
    cdef uint32_t i
    pthread_mutex_lock(&session.lock)
    for i in range(fetch.count):
        partition = &fetch.partitions[i]
        cached = partition.cached
        if session.generation != fetch.generation:
            cached = session_get(session, &partition.target)
        partition.respond = cached == NULL or update_cached(session, partition, cached)
        if not partition.respond:
            partition_drop_read(partition)
    pthread_mutex_unlock(&session.lock)


cdef void open_session(Fetch* fetch) noexcept nogil:
    """A full fetch was answered: keep its partitions for the next request. All of them or none:
    the client counts on what it named."""
    cdef Session* session = session_create(&fetch.broker.sessions, fetch.version >= 13,
                                           fetch.now_ms)
    cdef SessionPartition* cached = NULL
    cdef uint32_t i
    if session == NULL:
        return
    pthread_mutex_lock(&session.lock)
    for i in range(fetch.count):
        cached = session_put(session, &fetch.partitions[i].target)
        if cached == NULL:
            break
        update_cached(session, &fetch.partitions[i], cached)
    pthread_mutex_unlock(&session.lock)
    if fetch.count == 0 or cached != NULL:
        fetch.session = session
        return
    session_remove(&fetch.broker.sessions, session.id)
    session_unref(session)


cdef int32_t fetch_choose(Fetch* fetch) noexcept nogil:
    cdef uint32_t i
    if fetch.error != NONE:
        return SESSIONLESS_ID
    if fetch.incremental:
        select_news(fetch)
        return fetch.session.id
    for i in range(fetch.count):
        fetch.partitions[i].respond = True
    if fetch.create_session:
        open_session(fetch)
    return fetch.session.id if fetch.session != NULL else SESSIONLESS_ID
