"""A log moves to another directory while it is written to and read.

Its segments are copied, byte by byte, into a folder of the other directory; a second log is opened
there, the future one, which reads every checksum, and follows the first, with the same segments at
the same offsets. When little is left the log is frozen: for the moment that the rest takes appends
are refused as if another led (LOG_MOVING), and retention does nothing. Then, when the metadata know
that the partition lives there, the two exchange what they have of their folders. The log itself
stays what it is for whoever has it: offsets, producers, watermarks, watches. Readers at work end on
the descriptors of the old segments, as they do after a cleaning.

The cleaner is kept from both. kbroker.storage.moves has the steps, and what a crash leaves.
"""
from libc.stdint cimport int32_t

from kbroker.ext.journal cimport Journal
from kbroker.ext.log_state cimport Log

# The frozen log and its future: the folder of the second gets the name `place`, then that of the
# first `gone`; appends go through this journal (NULL: none) of the directory at that number. 0, or
# an errno after which the log is offline. `kept`: the errno where the first kept its name, which
# the log can do without. The lock order is as ever; `future` is nobody else's.
cdef int log_exchange(Log* log, Log* future, const char* gone, const char* place, Journal* journal,
                      int32_t directory, int* kept) noexcept nogil
