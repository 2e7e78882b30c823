// What pthreads needs structures and macros for.
#ifndef KBROKER_THREADS_H
#define KBROKER_THREADS_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

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

static inline void signals_block(void *old) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, (sigset_t *)old);
}

static inline void signals_restore(const void *old) {
    pthread_sigmask(SIG_SETMASK, (const sigset_t *)old, NULL);
}

#endif
