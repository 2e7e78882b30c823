"""Failures that nobody asks about (see client_unasked.pxd)."""
import logging

cimport cython

from kbroker.ext.atomics cimport atomic_load_i32
from kbroker.ext.client_batch cimport batch_root, batch_unref
from kbroker.ext.client_delivery cimport error_of
from kbroker.ext.client_topic cimport Part, Topic
from kbroker.ext.unmade cimport not_by_hand

log = logging.getLogger("kbroker.client.producer")


cdef void let_go(ClientBatch* b) noexcept:
    cdef ClientBatch* root = batch_root(b)
    root.unasked -= 1
    batch_unref(root)


cdef void let_all_go(ClientBatch* b) noexcept:
    cdef ClientBatch* after
    while b != NULL:
        after = b.next
        let_go(b)
        b = after


@cython.final
cdef class Unasked:
    """Those of one producer."""

    def __dealloc__(self) -> None:
        let_all_go(self.waiting)
        let_all_go(self.forgotten)

    cdef void put(self, ClientBatch* b) noexcept:
        batch_root(b).unasked += 1
        b.next = self.waiting
        self.waiting = b

    cdef void sort_out(self) noexcept:
        """Take out what was asked about, and what no delivery is left of."""
        cdef ClientBatch** at = &self.waiting
        cdef ClientBatch* b
        cdef ClientBatch* root
        while at[0] != NULL:
            b = at[0]
            root = batch_root(b)
            if not root.asked and atomic_load_i32(&root.refs) > root.unasked:
                at = &b.next
                continue
            at[0] = b.next
            if root.asked:
                let_go(b)
            else:
                b.next = self.forgotten
                self.forgotten = b

    @property
    def waits(self) -> bool:
        """True while the answer depends on deliveries that are still there."""
        return self.waiting != NULL

    def tell(self) -> None:
        """Call `unseen` for what nobody can ask about any more."""
        cdef ClientBatch* b
        self.sort_out()
        while self.forgotten != NULL:
            b = self.forgotten
            self.forgotten = b.next
            try:
                self.tell_one(b)
            finally:
                let_go(b)

    def end(self) -> None:
        """Call `unseen` as above, and let go of the rest: nothing is told after the end."""
        self.tell()
        let_all_go(self.waiting)
        self.waiting = NULL

    cdef int tell_one(self, ClientBatch* b) except -1:
        cdef Topic* t = (<Part*> b.part).topic
        cdef str topic = (<const char*> t.name)[:t.name_bytes].decode()
        if self.unseen is None:
            return 0
        try:
            self.unseen(error_of(b, -1, topic), topic, b.builder.count)
        except Exception:
            log.exception("%d records for topic %s were not delivered", b.builder.count, topic)
        return 0


cdef Unasked unasked_new():
    return Unasked.__new__(Unasked)


not_by_hand(Unasked)
