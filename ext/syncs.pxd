"""fdatasync and fsync: 0 or an errno, and which errors of a flush are none of the disk.

Not to find a descriptor, or memory for one, is a shortage of the moment: the file was not touched,
and a later flush may sync it. A sync that fails is final whatever it says: the kernel may have
dropped what it did not write. So that the two can be told apart by the errno, no sync gives one of
those that are shortages.
"""

from kbroker.ext.posix cimport EIO, EMFILE, ENFILE, ENOMEM, errno, fdatasync, fsync


cdef inline bint is_shortage(int error) noexcept nogil:
    return error == EMFILE or error == ENFILE or error == ENOMEM


cdef inline int failed_sync(int error) noexcept nogil:
    return EIO if is_shortage(error) else error


cdef inline int data_sync(int fd) noexcept nogil:
    return 0 if fdatasync(fd) == 0 else failed_sync(errno)


cdef inline int file_sync(int fd) noexcept nogil:
    return 0 if fsync(fd) == 0 else failed_sync(errno)
