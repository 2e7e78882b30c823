// What pthreads needs structures and macros for.
#ifndef KBROKER_THREADS_H
#define KBROKER_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SIGNAL_SET_BYTES = sizeof(sigset_t), THREAD_NAME_BYTES = 16 };

static inline int cond_init_monotonic(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int code = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return code;
}

static inline void thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }

// struct sched_attr as its first version has it; the C library of most systems does not.
typedef struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} schedule_t;

static inline void thread_hurries(void) {
    schedule_t wanted = {.size = sizeof wanted};
    if (syscall(SYS_sched_getattr, 0, &wanted, sizeof wanted, 0) == 0 && wanted.policy == 0) {
        wanted.runtime_ns = 100000; // the shortest; policy and nice stay what they were
        syscall(SYS_sched_setattr, 0, &wanted, 0);
    }
}

static inline void signals_block(void *old) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, (sigset_t *)old);
}

static inline void signals_restore(const void *old) {
    pthread_sigmask(SIG_SETMASK, (const sigset_t *)old, NULL);
}

#endif
