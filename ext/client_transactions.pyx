"""What a transactional producer's driver is told and asked beside a plain one's.

While a transaction is open, batches go out with its producer id, epoch and transactional id. Its
end begins with `flush`: every batch has its outcome then, and `txn_error` says whether one failed.
Python ends it at its coordinator, tells the next epoch (`set_producer_id`) and begins the next.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from kbroker.ext.atomics cimport atomic_exchange_i32, atomic_load_i32, atomic_store_i32
from kbroker.ext.client_accumulator cimport accumulator_kick
from kbroker.ext.client_producer cimport SenderDriver, TopicRef
from kbroker.ext.client_topic cimport Part


@cython.final
cdef class TransactionalDriver(SenderDriver):
    """SenderDriver of a producer with a transactional id."""

    def set_transactional_id(self, name: bytes) -> None:
        """Before the loop starts."""
        self.s.transactional_id = <uint8_t*> malloc(max(len(name), 1))
        if self.s.transactional_id == NULL:
            raise MemoryError
        memcpy(self.s.transactional_id, PyBytes_AS_STRING(name), len(name))
        self.s.transactional_id_bytes = len(name)
        self.s.transactional = True
        self.s.txn_closed = 1

    @property
    def adds_partitions(self) -> bool:
        """Whether Produce adds partitions to the transaction by itself."""
        return self.s.adds_partitions

    @adds_partitions.setter
    def adds_partitions(self, adds: bool) -> None:
        self.s.adds_partitions = adds

    def begin(self) -> None:
        """A transaction is open: records are taken. Nothing of one before is on its way."""
        atomic_store_i32(&self.s.txn_error, 0)
        atomic_store_i32(&self.s.txn, atomic_load_i32(&self.s.txn) + 1)
        atomic_store_i32(&self.s.txn_closed, 0)

    def close_transaction(self) -> None:
        """Nothing more is taken."""
        atomic_store_i32(&self.s.txn_closed, 1)

    @property
    def txn_error(self) -> int:
        """Kafka's error of the first batch that failed in the transaction; 0: none, -1: one was
        given up."""
        return atomic_load_i32(&self.s.txn_error)

    def take_unsure(self) -> bool:
        """Whether what was sent since the last call may have left a gap in the sequences, so that
        another epoch has to come."""
        return atomic_exchange_i32(&self.s.txn_unsure, 0) != 0

    def partitions_wanted(self) -> list[tuple[str, int]]:
        """Partitions with records that are not part of the transaction yet."""
        cdef TopicRef each
        cdef Part* part
        cdef int i
        found = []
        for name, each in list(self.topics.items()):
            for i in range(each.topic.count):
                part = each.topic.parts[i]
                if atomic_load_i32(&part.txn_wanted) \
                        and atomic_load_i32(&part.txn) != atomic_load_i32(&self.s.txn):
                    found.append((name, i))
        return found

    def partitions_added(self, partitions: list[tuple[str, int]]) -> None:
        """They are part of the transaction now."""
        cdef TopicRef found
        cdef int index
        for name, index in partitions:
            found = self.topics[name]
            atomic_store_i32(&found.topic.parts[index].txn_wanted, 0)
            atomic_store_i32(&found.topic.parts[index].txn, atomic_load_i32(&self.s.txn))
        accumulator_kick(&self.a, True)

    def fail_transaction(self, code: int) -> None:
        """Its end can only be an abort."""
        atomic_store_i32(&self.s.txn_error, code)
        atomic_store_i32(&self.s.txn_closed, 1)
