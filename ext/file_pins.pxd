"""Inodes of closed files, kept in memory.

Linux reports an error of writeback to descriptors that were open then, or else to the first sync of
a later one, and the inode knows of the latter only as long as it is in memory. A file with
unsynced bytes that is closed for want of descriptors is therefore mapped: one page that is never
touched, which takes no descriptor.
"""

# NULL: the file cannot be mapped, or PINS_MAX are. It has to stay open.
cdef void* file_pin(int fd) noexcept nogil
# The file was opened again, or is of no use any more. NULL is none.
cdef void file_unpin(void* pin) noexcept nogil
