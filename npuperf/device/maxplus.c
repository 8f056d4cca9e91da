/* Run a program of the replay: one instruction after the other, as maxplus.py says what each does.
 *
 * Columns are numpy's as they are: of 2, 4 or 8 bytes a number, at any distance, which is 0 where all are alike.
 * Nothing is read outside of the columns' rows and of the clocks: a row that is none is the last one, which nobody reads.
 */

#include <stdint.h>

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
#define EXPORT __attribute__((visibility("default")))
#define NEVER (-(INT64_C(1) << 31))
#define LONG_AGO (-(INT64_C(1) << 60))

typedef struct {
    const char *at;
    int64_t step;
    int64_t width;
} Column;

enum { PRED, HOST_NS, WAITED, WAITED_NS, HOST, LAUNCH_NS, STREAM, GAP_NS, OTHER, OTHER_NS, EXTRA_NS, DUR_NS, OVERLAP_NS,
       SAVE, COLUMNS };

static inline int64_t number(const Column *column, int64_t i) {
    const char *at = column->at + i * column->step;
    if (column->width == 8) return *(const int64_t *)at;
    return column->width == 4 ? *(const int32_t *)at : *(const int16_t *)at;
}

/* Sums wrap around, as numpy's do. */
static inline int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* The hash of the source that this was made of. */
EXPORT const char *maxplus_source(void) { return SOURCE_HASH; }

/* A number that differs where columns, what they are, or what switches a delay off, do. */
EXPORT int64_t maxplus_layout(void) { return (int64_t)(sizeof(Column) * 100 + COLUMNS) - NEVER; }

/* Execute ``count`` instructions on ``clocks`` clocks; ``start`` and ``end`` get the times of the device task of each
 * instruction at its ``place``, where it has one; without places at its own number.
 */
EXPORT void maxplus_run(const Column *columns, int64_t count, int64_t *clock, int64_t clocks, const int32_t *place,
                        int64_t *start, int64_t *end) {
    for (int64_t i = 0; i < count; i++) {
#define DELAY(name) number(&columns[name], i)
#define ARM(from, name) sum(from, DELAY(name) == NEVER ? LONG_AGO : DELAY(name))
#define CLOCK(name) ((uint64_t)number(&columns[name], i) < (uint64_t)clocks ? number(&columns[name], i) : clocks - 1)
        int64_t host = later(ARM(clock[CLOCK(PRED)], HOST_NS), ARM(clock[CLOCK(WAITED)], WAITED_NS));
        clock[CLOCK(HOST)] = host;
        int64_t stream = CLOCK(STREAM), before = clock[stream];
        int64_t begin = later(ARM(host, LAUNCH_NS), ARM(before, GAP_NS));
        begin = sum(later(begin, ARM(clock[CLOCK(OTHER)], OTHER_NS)), DELAY(EXTRA_NS));
        int64_t done = later(sum(begin, DELAY(DUR_NS)), ARM(before, OVERLAP_NS));
        done = later(done, LONG_AGO); /* sums of it must not run away */
        clock[stream] = done;
        clock[CLOCK(SAVE)] = done;
        int64_t at = place ? place[i] : i;
        if (at < 0) continue;
        start[at] = begin;
        end[at] = done;
    }
}
