"""Declarations of the operating system's functions: Linux, glibc.

A declaration is added when a module needs it, under the header that it comes from. The functions
that lock and unlock a mutex are wrapped: builds that count live objects count locked mutexes too.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stddef cimport size_t

from kbroker.ext.debug cimport OBJECT_LOCKED_MUTEX, object_born, object_died

cdef extern from "<sys/types.h>" nogil:
    ctypedef long ssize_t
    ctypedef long off_t
    ctypedef unsigned int mode_t

cdef extern from "<errno.h>" nogil:
    int errno
    enum:
        EIO
        EINTR
        EAGAIN
        ENOENT
        EEXIST
        EILSEQ
        ENOSPC
        EDQUOT
        EFBIG
        ENOMEM
        EMFILE
        ENFILE
        EOPNOTSUPP
        EINVAL

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* name, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW

cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDONLY
        O_WRONLY
        O_RDWR
        O_CREAT
        O_EXCL
        O_TRUNC
        O_APPEND
        O_CLOEXEC
        O_DIRECT
        O_DIRECTORY
        O_NOFOLLOW
        F_DUPFD_CLOEXEC
        POSIX_FADV_SEQUENTIAL
        POSIX_FADV_WILLNEED
        POSIX_FADV_DONTNEED
        SYNC_FILE_RANGE_WRITE
    int fcntl(int fd, int command, int argument)
    int open(const char* path, int flags, mode_t mode)
    int openat(int folder, const char* path, int flags, mode_t mode)
    int fallocate(int fd, int mode, off_t offset, off_t length)
    int posix_fadvise(int fd, off_t offset, off_t length, int advice)
    int sync_file_range(int fd, off_t offset, off_t length, unsigned int flags)

cdef extern from "<sys/resource.h>" nogil:
    enum:
        RLIMIT_NOFILE
    ctypedef struct rlimit_t "struct rlimit":
        uint64_t rlim_cur
    int getrlimit(int resource, rlimit_t* limit)

cdef extern from "<linux/falloc.h>" nogil:
    enum:
        FALLOC_FL_KEEP_SIZE
        FALLOC_FL_PUNCH_HOLE

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    ssize_t pread(int fd, void* buffer, size_t count, off_t offset)
    ssize_t write(int fd, const void* buffer, size_t count)
    ssize_t pwrite(int fd, const void* buffer, size_t count, off_t offset)
    int ftruncate(int fd, off_t length)
    int fsync(int fd)
    int fdatasync(int fd)
    int syncfs(int fd)
    int unlink(const char* path)
    int unlinkat(int folder, const char* path, int flags)
    int rmdir(const char* path)
    int link(const char* old, const char* new)

cdef extern from "<stdio.h>" nogil:
    int rename(const char* old, const char* new)
    int renameat(int folder, const char* old, int new_folder, const char* new)
    int snprintf(char* out, size_t size, const char* format, ...)

cdef extern from "<sys/stat.h>" nogil:
    ctypedef struct timespec_t "struct timespec":
        long tv_sec
        long tv_nsec
    ctypedef struct stat_t "struct stat":
        mode_t st_mode
        off_t st_size
        long st_blocks              # units of 512 bytes
        timespec_t st_mtim
    int fstat(int fd, stat_t* out)
    int stat(const char* path, stat_t* out)
    int mkdir(const char* path, mode_t mode)
    enum:
        UTIME_OMIT
    int futimens(int fd, const timespec_t* times)

cdef extern from "<sys/mman.h>" nogil:
    enum:
        PROT_READ
        PROT_WRITE
        MAP_SHARED
        MAP_PRIVATE
        MAP_POPULATE
        MAP_ANONYMOUS
        MREMAP_MAYMOVE
    void* MAP_FAILED
    void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset)
    void* mremap(void* address, size_t old_length, size_t new_length, int flags, ...)
    int munmap(void* address, size_t length)
    int msync(void* address, size_t length, int flags)
    int madvise(void* address, size_t length, int advice)
    enum:
        MS_SYNC
        MADV_DONTNEED

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    ctypedef struct dirent_t "struct dirent":
        char d_name[256]
    DIR* opendir(const char* path)
    dirent_t* readdir(DIR* directory)
    DIR* fdopendir(int fd)
    int closedir(DIR* directory)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef unsigned long pthread_t
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int c_mutex_lock "pthread_mutex_lock"(pthread_mutex_t* mutex)
    int c_mutex_trylock "pthread_mutex_trylock"(pthread_mutex_t* mutex)
    int c_mutex_timedlock "pthread_mutex_timedlock"(pthread_mutex_t* mutex,
                                                    const timespec_t* until)
    int c_mutex_unlock "pthread_mutex_unlock"(pthread_mutex_t* mutex)
    int pthread_create(pthread_t* thread, const void* attributes,
                       void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_cond_init(pthread_cond_t* condition, const void* attributes)
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_condattr_init(pthread_condattr_t* attributes)
    int pthread_condattr_setclock(pthread_condattr_t* attributes, int clock)
    int pthread_cond_destroy(pthread_cond_t* condition)
    int c_cond_wait "pthread_cond_wait"(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int c_cond_timedwait "pthread_cond_timedwait"(pthread_cond_t* condition,
                                                  pthread_mutex_t* mutex, const timespec_t* until)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)
    int pthread_join(pthread_t thread, void** result)

cdef inline int count_locked(int code) noexcept nogil:
    if code == 0:
        object_born(OBJECT_LOCKED_MUTEX)
    return code

cdef inline int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept nogil:
    return count_locked(c_mutex_lock(mutex))

cdef inline int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept nogil:
    return count_locked(c_mutex_trylock(mutex))

cdef inline int pthread_mutex_timedlock(pthread_mutex_t* mutex,
                                        const timespec_t* until) noexcept nogil:    # CLOCK_REALTIME
    return count_locked(c_mutex_timedlock(mutex, until))

cdef inline int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept nogil:
    object_died(OBJECT_LOCKED_MUTEX)
    return c_mutex_unlock(mutex)

cdef inline int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) noexcept nogil:
    cdef int code
    object_died(OBJECT_LOCKED_MUTEX)
    code = c_cond_wait(condition, mutex)
    object_born(OBJECT_LOCKED_MUTEX)
    return code

cdef inline int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                       const timespec_t* until) noexcept nogil:
    cdef int code
    object_died(OBJECT_LOCKED_MUTEX)
    code = c_cond_timedwait(condition, mutex, until)
    object_born(OBJECT_LOCKED_MUTEX)
    return code

cdef extern from "<time.h>" nogil:
    enum:
        CLOCK_REALTIME
        CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec_t* out)
    int nanosleep(const timespec_t* wanted, timespec_t* left)

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void** out, size_t alignment, size_t size)

cdef extern from "<string.h>" nogil:
    char* strdup(const char* text)
