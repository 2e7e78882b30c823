"""Faces of quotas and buckets for unit tests: never shipped, compiled with KBROKER_TEST=1."""
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free

from kbroker.ext.connection cimport Net
from kbroker.ext.quota_bucket cimport (
    Bucket, QuotaKey, Sampling, bucket_add, bucket_free, bucket_new, bucket_take,
)
from kbroker.ext.quotas cimport (
    CLIENT_ABSENT, CLIENT_DEFAULT, CLIENT_NAMED, Quotas, USER_ABSENT, quota_find, quota_key,
    quota_rule, quotas_free, quotas_new,
)


cdef class Usage:
    """A bucket with a limit."""

    cdef Sampling sampling
    cdef Bucket* bucket

    def __cinit__(self, samples, window_ms, limit):
        self.sampling.samples = samples
        self.sampling.window_ms = window_ms
        self.bucket = bucket_new(&self.sampling, limit)
        if self.bucket == NULL:
            raise MemoryError

    def __dealloc__(self):
        bucket_free(self.bucket)

    def take(self, amount, now_ms):
        """How long to wait, ms."""
        return bucket_take(&self.sampling, self.bucket, amount, now_ms)

    def add(self, amount, now_ms):
        """Without asking."""
        bucket_add(&self.sampling, self.bucket, amount, now_ms)


cdef class Rules:
    """Limits of client kinds, as an engine has them."""

    cdef Net* net

    def __cinit__(self):
        self.net = <Net*> calloc(1, sizeof(Net))
        if self.net != NULL:
            self.net.quotas = quotas_new(11, 1)
        if self.net == NULL or self.net.quotas == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.net != NULL:
            quotas_free(<Quotas*> self.net.quotas)
            free(self.net)

    cdef QuotaKey key(self, int kind, int user, object client_id):
        cdef QuotaKey key
        cdef int client = CLIENT_DEFAULT
        cdef const uint8_t* name = NULL
        cdef int64_t length = 0
        if client_id is not None:
            client = CLIENT_NAMED if client_id else CLIENT_ABSENT
            name = <const uint8_t*> <const char*> (<bytes> client_id)
            length = len(client_id)
        quota_key(<Quotas*> self.net.quotas, &key, kind, user, client, name, length)
        return key

    def put(self, kind, user, client_id, limit):
        """As Engine.set_quota."""
        cdef QuotaKey key = self.key(kind, user, client_id)
        if quota_rule(self.net, &key, 0 if limit is None else limit, limit is None) < 0:
            raise MemoryError

    def on(self):
        """Whether any client has a limit."""
        return bool(self.net.quotas_on)

    def find(self, kind, user, client_id):
        """(by user, by client id, limit) of what holds; None: nothing."""
        cdef QuotaKey who = self.key(0, user, client_id)
        cdef QuotaKey whose
        cdef double limit = 0
        if not quota_find(<Quotas*> self.net.quotas, &who, kind, &whose, &limit):
            return None
        return whose.user != USER_ABSENT, whose.client == CLIENT_NAMED, limit
