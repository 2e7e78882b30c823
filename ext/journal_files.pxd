"""The files of the journal: made ahead, used in turn, freed when their segments are on disk."""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kbroker.ext.journal_state cimport Journal, JournalOwner

# pwrite until all is written. 0 or an errno.
cdef int file_write(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil
# What is named in a directory is on disk, too. 0 or an errno.
cdef int directory_sync(const char* path) noexcept nogil
cdef int files_open_first(Journal* journal) noexcept nogil
cdef int files_next(Journal* journal, uint64_t group) noexcept nogil
cdef void file_note_owner(Journal* journal, JournalOwner* owner) noexcept nogil
cdef void files_hint(Journal* journal) noexcept nogil
# JournalCallbacks.sync, again and again where it is put off. 0 or an errno.
cdef int owner_sync(Journal* journal, JournalOwner* owner) noexcept nogil
# What all of them take on the disk: the first may be smaller than the others.
cdef int64_t files_bytes(Journal* journal) noexcept nogil
cdef void files_close(Journal* journal, bint unlink_files) noexcept nogil
cdef void* journal_checkpointer(void* argument) noexcept nogil
