/* Runs made-up programs whose columns, clocks and times have memory of exactly their size, so that a sanitizer sees any
 * step beyond: columns of any width and distance, rows that there are not, delays whose sums do not fit.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "maxplus.c"

enum { MOST_PROGRAMS = 3000, MOST_COUNT = 40, MOST_CLOCKS = 6 };

static uint64_t state = 1;

static uint64_t drawn(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

/* A number of so many bytes: a row, or the first one that is none, one far away, one below 0; any size of delay. */
static int64_t any_number(int is_row, int64_t clocks) {
    static const int64_t odd[] = {INT64_MIN, INT64_MAX, NEVER, -NEVER, -1, INT32_MIN, INT16_MAX};
    if (drawn(8) == 0) return odd[drawn(sizeof odd / sizeof *odd)];
    return (int64_t)drawn((uint64_t)(is_row ? clocks + 1 : 100));
}

static Column made_column(int is_row, int64_t count, int64_t clocks) {
    static const int64_t widths[] = {2, 4, 8};
    int64_t width = widths[drawn(3)], step = width * (int64_t)drawn(4);
    char *at = malloc((size_t)(count ? (count - 1) * step + width : 0));
    if (!at) exit(2);
    for (int64_t i = 0; i < count; i++) {
        int64_t value = any_number(is_row, clocks);
        int32_t half = (int32_t)value;
        int16_t quarter = (int16_t)value;
        memcpy(at + i * step, width == 8 ? (void *)&value : width == 4 ? (void *)&half : (void *)&quarter, (size_t)width);
    }
    return (Column){at, step, width};
}

static uint64_t run_program(void) {
    int64_t count = (int64_t)drawn(MOST_COUNT), clocks = 1 + (int64_t)drawn(MOST_CLOCKS), wanted = 0;
    Column columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        int is_row = i == PRED || i == WAITED || i == HOST || i == STREAM || i == OTHER || i == SAVE;
        columns[i] = made_column(is_row, count, clocks);
    }
    int some = (int)drawn(2);
    int64_t *clock = malloc((size_t)clocks * sizeof *clock);
    int32_t *place = malloc((size_t)count * sizeof *place + !count);
    if (!clock || !place) exit(2);
    for (int64_t i = 0; i < clocks; i++) clock[i] = any_number(0, clocks);
    for (int64_t i = 0; i < count; i++) place[i] = drawn(2) ? (int32_t)wanted++ : -1;
    size_t size = (size_t)(some ? wanted : count) * sizeof(int64_t);
    int64_t *start = malloc(size + !size), *end = malloc(size + !size);
    if (!start || !end) exit(2);
    maxplus_run(columns, count, clock, clocks, some ? place : NULL, start, end);
    uint64_t sum = 0;
    for (size_t i = 0; i < size / sizeof *start; i++) sum += (uint64_t)start[i] ^ (uint64_t)end[i];
    for (int i = 0; i < COLUMNS; i++) free((char *)columns[i].at);
    free(clock), free(place), free(start), free(end);
    return sum;
}

int main(void) {
    uint64_t sum = maxplus_source()[0] + (uint64_t)maxplus_layout();
    for (int i = 0; i < MOST_PROGRAMS; i++) sum += run_program();
    printf("%d programs, %016llx\n", MOST_PROGRAMS, (unsigned long long)sum);
    return 0;
}
