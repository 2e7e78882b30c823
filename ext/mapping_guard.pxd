"""Access to mapped files without the danger of SIGBUS.

A page that cannot be read, or that lies beyond the end of a file that was cut off, raises SIGBUS.
Within a guarded access the page is replaced by one of zeros, and the access goes on.

One module includes this: its state is that module's.
"""
from libc.stdint cimport int64_t

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <unistd.h>

    static __thread volatile uintptr_t guard_from, guard_to;
    static __thread volatile int64_t guard_hits;
    static __thread int guard_unblocked;
    static struct sigaction guard_before;
    static uintptr_t guard_page_bytes;
    static pthread_once_t guard_once = PTHREAD_ONCE_INIT;

    /* A fault elsewhere is for whoever handled SIGBUS before: the instruction runs again. A signal
       that was raised within an access comes from a handler that was put in front of this one. */
    static void guard_handle(int number, siginfo_t *info, void *context) {
        uintptr_t at = (uintptr_t)info->si_addr;
        (void)context;
        if (info->si_code > 0 && at >= guard_from && at < guard_to) {
            void *page = (void *)(at & ~(guard_page_bytes - 1));
            int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS;
            if (mmap(page, guard_page_bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED) {
                guard_hits = guard_hits + 1;
                return;
            }
        }
        if (info->si_code > 0 || guard_to == 0)
            sigaction(number, &guard_before, NULL);
        if (info->si_code <= 0 && guard_to == 0)
            raise(number);
    }

    static void guard_install(void) {
        struct sigaction action = {};
        action.sa_sigaction = guard_handle;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        guard_page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
        sigaction(SIGBUS, &action, &guard_before);
    }

    static void guard_prepare(void) { pthread_once(&guard_once, guard_install); }

    /* Threads of the data plane block all signals; a fault while it is blocked kills. */
    static void guard_unblock(void) {
        sigset_t fault;
        sigemptyset(&fault);
        sigaddset(&fault, SIGBUS);
        pthread_sigmask(SIG_UNBLOCK, &fault, NULL);
        guard_unblocked = 1;
    }

    static inline void guard_begin(const void *map, int64_t bytes) {
        if (!guard_unblocked)
            guard_unblock();
        guard_from = (uintptr_t)map;
        guard_to = (uintptr_t)map + (uintptr_t)bytes;
        __asm__ volatile("" ::: "memory");
    }

    static inline void guard_end(void) {
        __asm__ volatile("" ::: "memory");
        guard_to = 0;
        guard_from = 0;
    }

    static inline int64_t guard_faults(void) { return guard_hits; }
    """
    # Before the first access.
    void guard_prepare() noexcept
    # Around each access to a mapping.
    void guard_begin(const void* map, int64_t bytes) noexcept
    void guard_end() noexcept
    # How many pages this thread has met that could not be read.
    int64_t guard_faults() noexcept
