/* Faults of the system, at a chosen call: loaded before everything else into npuperf and all that it starts.

   CHAOS_ROOT   only calls about what lies below this folder fail, and only from the first that names such a path:
                what Python does to load itself is not npuperf's to outlast
   CHAOS_BOARD  a file that all these processes and who started them share: calls counted, by kind, and what they agree on
   CHAOS_FAULT  "KIND,KIND… EFFECT FIRST TIMES": an error number, or one of the words below; calls of these kinds are
                numbered from 1 across all processes

   A call that is held waits until whoever watches the board has done something meanwhile. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN, MAKE, LIST, STAT, READ, WRITE, CLOSE, RENAME, REMOVE, TOUCH, LOCK, MEMORY, PROCESS, THREAD, PIPE, KINDS };
static const char *const NAMES[] = {"open",   "make",  "list", "stat",   "read",    "write",  "close", "rename",
                                    "remove", "touch", "lock", "memory", "process", "thread", "pipe"};
enum { SHORT = -1, SLOW = -2, HELD = -3, CLOCK = -4 };
#define SLOW_US 3000
#define LARGE (32 << 10) /* bytes from which on a piece of memory is counted */

static struct board {
    _Atomic long counts[KINDS], all, hits, armed, held, go;
} *board;
static char root[4096];
static size_t root_length;
static unsigned kinds;
static long effect, first, times, shift;

static long at_call(int kind) { /* returns what is to become of a call: 0 nothing, an error number, or SHORT */
    if (!board || !board->armed)
        return 0;
    board->counts[kind]++;
    if (!(kinds >> kind & 1))
        return 0;
    long number = ++board->all;
    if (number < first || number - first >= times)
        return 0;
    board->hits++;
    if (effect == SLOW)
        usleep(SLOW_US);
    if (effect == HELD) {
        board->held = getpid();
        for (int ms = 0; !board->go && ms < 10000; ms++)
            usleep(1000);
        board->held = 0;
    }
    return effect == SLOW || effect == HELD ? 0 : effect;
}

static int lies_below(const char *path) {
    char whole[8192] = "";
    if (!board || !path)
        return 0;
    if (*path != '/') {
        if (syscall(SYS_getcwd, whole, 4096) < 0)
            return 0;
        strcat(whole, "/");
    }
    strncat(whole, path, 4000);
    return !strncmp(whole, root, root_length) && (!whole[root_length] || whole[root_length] == '/');
}

static int below(const char *path) { /* from now on calls fail: Python itself has begun */
    int ours = lies_below(path);
    if (ours)
        board->armed = 1;
    return ours;
}

static int is_below(int fd) {
    char link[32], path[4096];
    if (!board)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length <= 0 || *path != '/') /* a pipe or the like */
        return 0;
    path[length] = 0;
    return lies_below(path);
}

static int writes(int fd) {
    return (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

__attribute__((constructor)) void chaos_begin(void) {
    const char *file = getenv("CHAOS_BOARD"), *below = getenv("CHAOS_ROOT"), *fault = getenv("CHAOS_FAULT");
    char words[256];
    if (!file || !below || board)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC);
    void *there = (void *)syscall(SYS_mmap, NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    snprintf(root, sizeof root, "%s", below);
    root_length = strlen(root);
    if (fault && sscanf(fault, "%255s %ld %ld %ld", words, &effect, &first, &times) == 4)
        for (char *word = strtok(words, ","); word; word = strtok(NULL, ","))
            for (int kind = 0; kind < KINDS; kind++)
                kinds |= (unsigned)!strcmp(word, NAMES[kind]) << kind;
    if (effect == CLOCK)
        shift = first, kinds = 0;
    board = there == MAP_FAILED ? NULL : there;
}

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAIL(kind, about, failed)                                                                                      \
    long fate = (about) ? at_call(kind) : 0;                                                                           \
    if (fate > 0)                                                                                                      \
    return errno = (int)fate, failed
/* NAME: a function of the C library; PARAMETERS, and ARGUMENTS as they are handed on; ABOUT: whether that is ours */
#define CALL(type, name, parameters, arguments, kind, about, failed)                                                   \
    type name parameters {                                                                                             \
        REAL(name);                                                                                                    \
        FAIL(kind, about, failed);                                                                                     \
        return real arguments;                                                                                         \
    }
#define OPENED(name, parameters, path, ...)                                                                            \
    int name parameters {                                                                                              \
        REAL(name);                                                                                                    \
        mode_t mode = 0;                                                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                           \
            va_list more;                                                                                              \
            va_start(more, flags);                                                                                     \
            mode = va_arg(more, mode_t);                                                                               \
            va_end(more);                                                                                              \
        }                                                                                                              \
        FAIL((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT ? MAKE : OPEN, below(path), -1);                       \
        return real(__VA_ARGS__, flags, mode);                                                                         \
    }
#define MOVED(type, name, parameters, arguments, kind)                                                                 \
    type name parameters {                                                                                             \
        REAL(name);                                                                                                    \
        FAIL(kind, is_below(fd), -1);                                                                                  \
        if (fate == SHORT && n > 1)                                                                                    \
            n = n > 2000 ? 1000 : n / 2;                                                              \
        return real arguments;                                                                                         \
    }

OPENED(open, (const char *path, int flags, ...), path, path)
OPENED(open64, (const char *path, int flags, ...), path, path)
OPENED(openat, (int at, const char *path, int flags, ...), path, at, path)
OPENED(openat64, (int at, const char *path, int flags, ...), path, at, path)
MOVED(ssize_t, read, (int fd, void *to, size_t n), (fd, to, n), READ)
MOVED(ssize_t, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at), READ)
MOVED(ssize_t, pread64, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at), READ)
MOVED(ssize_t, write, (int fd, const void *from, size_t n), (fd, from, n), WRITE)
MOVED(ssize_t, pwrite, (int fd, const void *from, size_t n, off_t at), (fd, from, n, at), WRITE)
MOVED(ssize_t, pwrite64, (int fd, const void *from, size_t n, off64_t at), (fd, from, n, at), WRITE)
CALL(ssize_t, writev, (int fd, const struct iovec *from, int n), (fd, from, n), WRITE, is_below(fd), -1)
CALL(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t n), (to, from, at, n), WRITE, is_below(to), -1)
CALL(int, stat64, (const char *restrict path, struct stat64 *restrict found), (path, found), STAT, below(path), -1)
CALL(int, lstat64, (const char *restrict path, struct stat64 *restrict found), (path, found), STAT, below(path), -1)
CALL(int, fstat64, (int fd, struct stat64 *found), (fd, found), STAT, is_below(fd), -1)
CALL(DIR *, opendir, (const char *path), (path), LIST, below(path), NULL)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), MAKE, below(path), -1)
CALL(int, rename, (const char *from, const char *to), (from, to), RENAME, below(to), -1)
CALL(int, unlink, (const char *path), (path), REMOVE, below(path), -1)
CALL(int, rmdir, (const char *path), (path), REMOVE, below(path), -1)
CALL(int, chmod, (const char *path, mode_t mode), (path, mode), TOUCH, below(path), -1)
CALL(int, utimensat, (int at, const char *path, const struct timespec t[2], int flags), (at, path, t, flags), TOUCH,
     below(path), -1)
CALL(int, flock, (int fd, int how), (fd, how), LOCK, is_below(fd), -1)
CALL(void *, mmap64, (void *at, size_t n, int prot, int flags, int fd, off64_t from), (at, n, prot, flags, fd, from),
     MEMORY, n >= LARGE, MAP_FAILED)
CALL(void *, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t from), (at, n, prot, flags, fd, from),
     MEMORY, n >= LARGE, MAP_FAILED)
CALL(pid_t, fork, (void), (), PROCESS, 1, -1)
CALL(int, pipe2, (int fds[2], int flags), (fds, flags), PIPE, 1, -1)
CALL(int, socketpair, (int domain, int type, int protocol, int fds[2]), (domain, type, protocol, fds), PIPE, 1, -1)
CALL(int, pthread_create, (pthread_t *restrict t, const pthread_attr_t *restrict how, void *(*run)(void *),
                           void *restrict with), (t, how, run, with), THREAD, 1, EAGAIN)

int close(int fd) { /* says only now that the disk is full, and closes all the same */
    long fate = is_below(fd) && writes(fd) ? at_call(CLOSE) : 0;
    int closed = (int)syscall(SYS_close, fd);
    return fate > 0 ? (errno = (int)fate, -1) : closed;
}

static int fcntl_of(int fd, int what, void *with) {
    long fate = (what == F_SETLK || what == F_SETLKW) && is_below(fd) ? at_call(LOCK) : 0;
    return fate > 0 ? (errno = (int)fate, -1) : (int)syscall(SYS_fcntl, fd, what, with);
}
#define FCNTL(name)                                                                                                    \
    int name(int fd, int what, ...) {                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, what);                                                                                          \
        void *with = va_arg(more, void *);                                                                             \
        va_end(more);                                                                                                  \
        return fcntl_of(fd, what, with);                                                                               \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
#define MEMORY_BY(name, parameters, bytes, arguments)                                                                  \
    void *name parameters {                                                                                            \
        FAIL(MEMORY, bytes >= LARGE, NULL);                                                                            \
        return __libc_##name arguments;                                                                                \
    }
MEMORY_BY(malloc, (size_t n), n, (n))
MEMORY_BY(calloc, (size_t many, size_t n), many * n, (many, n))
MEMORY_BY(realloc, (void *old, size_t n), n, (old, n))

int clock_gettime(clockid_t which, struct timespec *now) {
    int status = (int)syscall(SYS_clock_gettime, which, now);
    if (!status && which == CLOCK_REALTIME)
        now->tv_sec += shift;
    return status;
}

time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    return now ? (*now = found.tv_sec) : found.tv_sec;
}
