/* Large arrays in files, so that the system can put aside what memory does not hold: numpy's handler (NEP 49).
 *
 * Each array is a file of its own that has no name any more, so nothing is left behind whatever happens. Its space is
 * reserved first: a disk that is full refuses it here, and the array is in plain memory, rather than ending the process
 * at some later write. What is freed is kept for arrays of about the same size, because fresh pages take longer than
 * most sums over them.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/vfs.h>
#endif

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
#define EXPORT __attribute__((visibility("default")))
#define MOST_FILES 16384 /* of 65,530 mappings that a process may have */
#define IN_MEMORY_1 0x01021994 /* tmpfs, ramfs: files of theirs take memory, too */
#define IN_MEMORY_2 0x858458f6

typedef struct {
    char *at;
    size_t size;
    int used;
} File;

/* As numpy has it. */
typedef struct {
    char name[127];
    uint8_t version;
    struct {
        void *context;
        void *(*allocate)(void *, size_t);
        void *(*zeroed)(void *, size_t, size_t);
        void *(*resize)(void *, void *, size_t);
        void (*release)(void *, void *, size_t);
    } functions;
} Handler;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static File files[MOST_FILES];
static int count;
static char template[4096];
static size_t least, most, most_spare, total, spare, page = 4096;
static int64_t peak;

/* ---- files ---- */

static char *map_file(size_t size) {
#ifdef __linux__
    char name[sizeof template];
    memcpy(name, template, sizeof template);
    int file = mkostemp(name, O_CLOEXEC);
    if (file < 0) return NULL;
    unlink(name);
    char *at = MAP_FAILED;
    if (fallocate(file, 0, 0, (off_t)size) == 0) at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
#else
    (void)size;
    return NULL;
#endif
}

static void remove_file(int i) {
    munmap(files[i].at, files[i].size);
    total -= files[i].size;
    files[i] = files[--count];
}

/* Return the smallest spare file that is large enough, and not much larger; -1 if there is none. */
static int spare_file(size_t size) {
    int best = -1;
    for (int i = 0; i < count; i++)
        if (!files[i].used && files[i].size >= size && files[i].size <= size + size / 4
            && (best < 0 || files[i].size < files[best].size))
            best = i;
    return best;
}

/* Return memory in a file, NULL if it cannot be. ``zeroed``: as fresh files are, and those used before are not. */
static void *take(size_t size, int zeroed) {
    if (size < least || size > SIZE_MAX / 2) return NULL;
    size_t whole = (size + page - 1) / page * page;
    char *at = NULL;
    pthread_mutex_lock(&lock);
    int i = spare_file(whole);
    if (i >= 0) {
        files[i].used = 1;
        spare -= files[i].size;
        at = files[i].at;
    } else if (count < MOST_FILES && whole <= most - total && (at = map_file(whole)) != NULL) {
        files[count++] = (File){at, whole, 1};
        total += whole;
        if ((int64_t)total > peak) peak = (int64_t)total;
        zeroed = 0;
    }
    pthread_mutex_unlock(&lock);
    if (at && zeroed) memset(at, 0, size);
    return at;
}

/* Return the size of the file whose memory this is, 0 if it is no file's; ``release``: it is not needed any more. */
static size_t size_of(void *at, int release) {
    size_t size = 0;
    if ((uintptr_t)at % page) return 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !size; i++) {
        if (files[i].at != at) continue;
        size = files[i].size;
        if (release) {
            files[i].used = 0;
            spare += size;
        }
    }
    for (int i = 0; spare > most_spare && i < count;) {
        if (files[i].used) {
            i++;
        } else {
            spare -= files[i].size;
            remove_file(i);
        }
    }
    pthread_mutex_unlock(&lock);
    return size;
}

/* ---- what numpy asks for ---- */

static void *allocate(void *context, size_t size) {
    (void)context;
    void *at = take(size, 0);
    return at ? at : malloc(size ? size : 1);
}

static void *zeroed(void *context, size_t rows, size_t each) {
    (void)context;
    size_t size;
    if (__builtin_mul_overflow(rows, each, &size)) return NULL;
    void *at = take(size, 1);
    return at ? at : calloc(1, size ? size : 1);
}

static void release(void *context, void *at, size_t size) {
    (void)context;
    (void)size;
    if (at && !size_of(at, 1)) free(at);
}

static void *resize(void *context, void *at, size_t size) {
    size_t before = at ? size_of(at, 0) : 0;
    if (!before) return realloc(at, size ? size : 1);
    void *larger = allocate(context, size);
    if (!larger) return NULL;
    memcpy(larger, at, before < size ? before : size);
    release(context, at, before);
    return larger;
}

static Handler handler = {"npuperf_spill", 1, {NULL, allocate, zeroed, resize, release}};

/* ---- what npuperf asks for ---- */

/* The hash of the source that this was made of. */
EXPORT const char *spill_source(void) { return SOURCE_HASH; }

/* Put arrays of ``from`` bytes and more into files in a folder, ``upto`` bytes in all, and keep ``keep`` of those that
 * are freed. Returns numpy's handler; NULL where the folder takes no such files, or is in memory itself. */
EXPORT void *spill_into(const char *folder, int64_t from, int64_t upto, int64_t keep) {
#ifdef __linux__
    struct statfs system;
    if (statfs(folder, &system) || system.f_type == IN_MEMORY_1 || (unsigned long)system.f_type == IN_MEMORY_2)
        return NULL;
    pthread_mutex_lock(&lock);
    int known = snprintf(template, sizeof template, "%s/.npuperf-XXXXXX", folder);
    page = (size_t)sysconf(_SC_PAGESIZE);
    least = (size_t)from;
    most = (size_t)upto;
    most_spare = (size_t)keep;
    char *at = known > 0 && known < (int)sizeof template ? map_file(page) : NULL;
    if (at) munmap(at, page);
    pthread_mutex_unlock(&lock);
    return at ? &handler : NULL;
#else
    (void)folder, (void)from, (void)upto, (void)keep, (void)handler;
    return NULL;
#endif
}

/* The most bytes that were in files at the same time. */
EXPORT int64_t spill_peak(void) {
    pthread_mutex_lock(&lock);
    int64_t found = peak;
    pthread_mutex_unlock(&lock);
    return found;
}
