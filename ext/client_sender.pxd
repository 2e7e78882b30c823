"""The sender: what a producer hangs into its loop. Everything here runs on the loop thread, but
for what says otherwise.

A turn (`sender_drive`): what Python told, batches past delivery.timeout.ms, sequences whose fate
is known now, which brokers have something ready, one Produce to each of those as often as
max.in.flight.requests.per.connection allows.

Order of an idempotent partition, as Java's TransactionManager keeps it: a batch gets its sequence
at its first drain and keeps it; while one is being retried, those behind it wait for it; a gap
that cannot be closed any more bumps the epoch, and sequences begin anew at 0 once all batches of
the old one have their outcome.
"""
from libc.stdint cimport int32_t, int64_t

cdef int64_t sender_drive(void* self, int64_t now_ns) noexcept nogil
cdef void sender_link_down(void* self, int32_t link, int code) noexcept nogil
cdef void sender_stopped(void* self) noexcept nogil
