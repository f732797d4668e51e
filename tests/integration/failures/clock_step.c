/* Preloaded into a run: from an instant on, the wall clock and the kernel's receive stamps are FLL_STEP_NS further, as
   after settimeofday(). The file FLL_STEP_AT holds that instant as one int64 (CLOCK_MONOTONIC, ns); it may be written while
   the run goes on, and 0 is never. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#define NS 1000000000LL

static int (*real_gettime)(clockid_t, struct timespec *);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);
static long (*real_syscall)(long, ...);
static volatile int64_t *step_at;
static int64_t step_ns;

__attribute__((constructor)) static void begin(void) {
    real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_recvmsg = dlsym(RTLD_NEXT, "recvmsg");
    real_syscall = dlsym(RTLD_NEXT, "syscall");
    step_at = mmap(NULL, sizeof *step_at, PROT_READ, MAP_SHARED, open(getenv("FLL_STEP_AT"), O_RDONLY), 0);
    if (step_at == MAP_FAILED)
        abort();
    step_ns = atoll(getenv("FLL_STEP_NS"));
}

static int64_t ns(const struct timespec *t) { return t->tv_sec * NS + t->tv_nsec; }

static int64_t of(clockid_t clock) {
    struct timespec now;
    real_gettime(clock, &now);
    return ns(&now);
}

static int stepped(int64_t monotonic) { return *step_at && monotonic >= *step_at; }

static void shift(struct timespec *t) {
    int64_t later = ns(t) + step_ns;
    t->tv_sec = later / NS;
    t->tv_nsec = later % NS;
}

int clock_gettime(clockid_t clock, struct timespec *t) {
    int failed = real_gettime(clock, t);
    if (!failed && clock == CLOCK_REALTIME && stepped(of(CLOCK_MONOTONIC)))
        shift(t);
    return failed;
}

static void shift_stamps(struct msghdr *message) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
            if (stepped(ns(&stamp) - of(CLOCK_REALTIME) + of(CLOCK_MONOTONIC))) {
                shift(&stamp);
                memcpy(CMSG_DATA(c), &stamp, sizeof stamp);
            }
        }
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
    ssize_t got = real_recvmsg(fd, message, flags);
    if (got >= 0)
        shift_stamps(message);
    return got;
}

long syscall(long number, ...) {
    long a[6], got;
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(given, long);
    va_end(given);
    got = real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_recvmsg && got >= 0)
        shift_stamps((struct msghdr *)a[1]);
    return got;
}
