"""What the network half is told, and what it counts."""
from libc.stdint cimport int64_t

cdef struct NetSettings:
    int64_t network_threads
    int64_t io_threads
    int64_t queued_requests_max     # to the I/O pool
    int64_t control_requests_max
    int64_t queued_request_bytes_max
    int64_t buffer_cache_bytes_max
    int64_t request_bytes_max
    int64_t connections_max         # atomic: may change while the engine runs
    int64_t connections_per_ip_max  # under addresses_lock, may change
    int64_t idle_ms_max
    int64_t handshake_ms_max        # to say who it is, TLS included
    int64_t sasl_bytes_max          # a frame in STAGE_SASL
    int64_t in_flight_max
    int64_t unsent_bytes_max        # above it a connection is not read
    int64_t read_bytes              # the thread-wide buffer
    int64_t quota_samples
    int64_t quota_window_s

# Written by its own thread, read by stats(). Only int64_t, in the order of counters.NAMES.
cdef struct Counters:
    int64_t requests
    int64_t bytes_in
    int64_t bytes_out
    int64_t sendfile_bytes
    int64_t reads
    int64_t sends
    int64_t turns
    int64_t wakeups
    int64_t posts
    int64_t parked
    int64_t stalls
    int64_t accepted
    int64_t closed
    int64_t idle_closed
    int64_t ops_live
    int64_t connections
    int64_t handshakes              # of TLS, done
    int64_t handshakes_failed
