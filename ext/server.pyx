"""Net: made, started, stopped and freed (see server.pxd)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kbroker.ext.accept_limits cimport limits_destroy, limits_init
from kbroker.ext.addresses cimport addresses_destroy
from kbroker.ext.api_versions cimport api_versions_destroy, api_versions_handle
from kbroker.ext.atomics cimport (
    atomic_exchange_i32, atomic_fence, atomic_load_i32, atomic_store_i32,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport (
    API_KEYS_MAX, API_VERSIONS_KEY, H_CLOSE, Job, JobQueue, LISTENERS_MAX, NET_THREADS_MAX,
    NetThread, Runner, STOP_DRAIN, STOP_NOW,
)
from kbroker.ext.io_pool cimport io_pool_resize, io_pool_stop
from kbroker.ext.listener cimport (
    acceptor_errand, acceptor_start, acceptor_stop, listener_skips_pacing,
)
from kbroker.ext.log_ring cimport log_ring_init
from kbroker.ext.loop cimport runner_main, thread_free, thread_new
from kbroker.ext.memory cimport pool_destroy, pool_init
from kbroker.ext.network cimport thread_run_posts, thread_wake
from kbroker.ext.posix cimport (
    ENOMEM, close, pthread_cond_destroy, pthread_cond_init, pthread_create, pthread_join,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, snprintf,
)
from kbroker.ext.principal_uses cimport principals_free
from kbroker.ext.quotas cimport Quotas, quotas_free, quotas_new
from kbroker.ext.queue cimport job_finish, queue_close, queue_destroy, queue_init, queue_pop
from kbroker.ext.sockets cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, SIGNAL_SET_BYTES, cond_init_monotonic, eventfd, poll, signals_block,
    signals_restore,
)
from kbroker.ext.watch cimport watch_start, watch_stop


cdef Net* net_create(const NetSettings* settings) noexcept nogil:
    cdef Net* net = <Net*> calloc(1, sizeof(Net))
    cdef int32_t key
    if net == NULL:
        return NULL
    net.settings = settings[0]
    for key in range(API_KEYS_MAX):
        net.apis[key].first_flexible = -1
    net.apis[API_VERSIONS_KEY].handler = api_versions_handle
    pool_init(&net.pool, settings.queued_request_bytes_max, settings.buffer_cache_bytes_max)
    queue_init(&net.control, settings.control_requests_max)
    queue_init(&net.io, settings.queued_requests_max)
    pthread_mutex_init(&net.addresses_lock, NULL)
    pthread_mutex_init(&net.threads_lock, NULL)
    pthread_cond_init(&net.io_parked, NULL)
    pthread_cond_init(&net.errand_done, NULL)
    pthread_mutex_init(&net.hang_lock, NULL)
    cond_init_monotonic(&net.hang_moves)
    log_ring_init(&net.log)
    net.acceptor_event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    net.quotas = quotas_new(settings.quota_samples, settings.quota_window_s)
    if net.quotas == NULL or not limits_init(net):
        net_destroy(net)
        return NULL
    return net


cdef int32_t net_listen(Net* net, int32_t fd, int32_t port, const char* name,
                        int32_t security) noexcept nogil:
    cdef int32_t index = net.listeners_count
    if index >= LISTENERS_MAX:
        return -1
    net.listeners[index].fd = fd
    net.listeners[index].port = port
    net.listeners[index].security = security
    snprintf(net.listeners[index].name, sizeof(net.listeners[index].name), "%s", name)
    listener_skips_pacing(&net.listeners[index])
    net.listeners_count += 1
    return index


cdef int add_network_threads(Net* net, int count) noexcept nogil:
    """0, or an errno; as many as were there stay there."""
    cdef NetThread* thread
    cdef int code
    while net.threads_count < min(count, <int> NET_THREADS_MAX):
        thread = thread_new(net, net.threads_count)
        if thread == NULL:
            return ENOMEM
        thread.running = 1
        thread.runner.gone = False
        code = pthread_create(&thread.runner.pthread, NULL, runner_main, thread.runner)
        if code != 0:
            thread_free(thread)
            return code
        (<Runner*> thread.runners).started = True
        net.threads[net.threads_count] = thread
        atomic_store_i32(&net.threads_count, net.threads_count + 1)
    atomic_store_i32(&net.threads_wanted, count)
    return 0


cdef int32_t resize(Net* net) noexcept nogil:
    """Signals are the control plane's: the threads are born with all of them blocked."""
    cdef char before[SIGNAL_SET_BYTES]
    cdef int code
    signals_block(before)
    code = add_network_threads(net, <int> net.settings.network_threads)
    if code == 0:
        code = io_pool_resize(net, <int32_t> net.settings.io_threads)
    signals_restore(before)
    return code


cdef int net_resize(Net* net, int64_t network_threads, int64_t io_threads) noexcept nogil:
    """By the acceptor, once it runs: threads inherit the nice value of who makes them."""
    cdef int code = 0
    pthread_mutex_lock(&net.threads_lock)
    if not atomic_load_i32(&net.stopping):
        net.settings.network_threads = network_threads
        net.settings.io_threads = io_threads
        code = acceptor_errand(net, resize)
    pthread_mutex_unlock(&net.threads_lock)
    return code


cdef int net_start(Net* net) noexcept nogil:
    cdef char before[SIGNAL_SET_BYTES]
    cdef int code = net_resize(net, net.settings.network_threads, net.settings.io_threads)
    if code == 0:
        signals_block(before)
        code = watch_start(net) or acceptor_start(net)
        signals_restore(before)
    return code


cdef void announce(Net* net, int32_t stopping) noexcept nogil:
    cdef int index
    atomic_store_i32(&net.stopping, stopping)
    for index in range(net.threads_count):
        atomic_exchange_i32(&net.threads[index].retry, 1)
        atomic_fence()
        thread_wake(net.threads[index])


cdef bint is_anything_running(Net* net) noexcept nogil:
    cdef int index
    for index in range(net.threads_count):
        if atomic_load_i32(&net.threads[index].running):
            return True
    return False


cdef void run_late_posts(NetThread* thread) noexcept nogil:
    """In place of a thread that has ended."""
    while thread_run_posts(thread):
        pass


cdef void join_runners(Runner* runner) noexcept nogil:
    while runner != NULL:
        if runner.started:
            pthread_join(runner.pthread, NULL)
            runner.started = False
        runner = runner.next


cdef void net_stop(Net* net, int64_t deadline_ms) noexcept nogil:
    cdef int64_t until_ns = monotonic_ns() + deadline_ms * 1000000
    cdef int index
    acceptor_stop(net)
    pthread_mutex_lock(&net.threads_lock)
    announce(net, STOP_DRAIN)
    pthread_mutex_unlock(&net.threads_lock)
    while is_anything_running(net) and monotonic_ns() < until_ns:
        poll(NULL, 0, 1)
    announce(net, STOP_NOW)
    watch_stop(net)
    for index in range(net.threads_count):
        join_runners(<Runner*> net.threads[index].runners)
    io_pool_stop(net)
    queue_close(&net.control)
    # What came home since: handlers let go of it now, while what they refer to still lives.
    for index in range(net.threads_count):
        run_late_posts(net.threads[index])


cdef void drop_jobs(Net* net, JobQueue* queue) noexcept nogil:
    cdef Job* job
    queue_close(queue)
    while True:
        job = queue_pop(net, queue, 0)
        if job == NULL:
            return
        job_finish(job, H_CLOSE)


cdef void net_destroy(Net* net) noexcept nogil:
    """After net_stop, when nobody holds an Op or a job any more."""
    cdef int index
    drop_jobs(net, &net.control)
    drop_jobs(net, &net.io)
    for index in range(net.threads_count):
        thread_free(net.threads[index])
    api_versions_destroy(net)
    addresses_destroy(net)
    limits_destroy(net)
    quotas_free(<Quotas*> net.quotas)
    principals_free(net)
    queue_destroy(&net.control)
    queue_destroy(&net.io)
    pool_destroy(&net.pool)
    pthread_mutex_destroy(&net.addresses_lock)
    pthread_mutex_destroy(&net.threads_lock)
    pthread_cond_destroy(&net.io_parked)
    pthread_cond_destroy(&net.errand_done)
    pthread_mutex_destroy(&net.hang_lock)
    pthread_cond_destroy(&net.hang_moves)
    close(net.acceptor_event_fd)
    free(net)
