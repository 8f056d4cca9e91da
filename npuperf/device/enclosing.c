/* What encloses what among the events of threads, and what is innermost when: each in one pass over the events.
 *
 * Events stand thread by thread, by start, the longer first; thread i has those from first[i] to before until[i].
 * A parent is a row, -1 at the top, and stands before its children. npuperf/device/host_events.py says what is found, and
 * finds the same without this.
 */

#include <stdint.h>

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
#define EXPORT __attribute__((visibility("default")))
#define NOTHING 255

/* The hash of the source that this was made of. */
EXPORT const char *enclosing_source(void) { return SOURCE_HASH; }

/* Differences of any times are defined, as numpy has them. */
static int64_t middle(int64_t start, int64_t end) {
    int64_t half = (int64_t)((uint64_t)end - (uint64_t)start) >> 1;
    return (int64_t)((uint64_t)start + (uint64_t)(half > 1 ? half : 1));
}

/* The latest earlier event of the thread that reaches beyond the middle of each one: what one parent does not reach
 * is passed by with it. */
EXPORT void enclosing_parents(int64_t threads, const int64_t *first, const int64_t *until, const int64_t *start,
                              const int64_t *end, int32_t *parent) {
    for (int64_t thread = 0; thread < threads; thread++) {
        parent[first[thread]] = -1;
        for (int64_t i = first[thread] + 1; i < until[thread]; i++) {
            int64_t least = middle(start[i], end[i]), at = i - 1;
            while (at >= 0 && end[at] < least) at = parent[at];
            parent[i] = (int32_t)at;
        }
    }
}

/* Ends of events that are open, the earliest first: a heap from heap[0] on. */
static void push(int64_t *heap, int64_t size, int64_t end) {
    int64_t at = size;
    while (at && heap[(at - 1) / 2] > end) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = end;
}

static void pop(int64_t *heap, int64_t size) {
    int64_t last = heap[size - 1], at = 0, below;
    while ((below = 2 * at + 1) < size - 1) {
        if (below + 1 < size - 1 && heap[below + 1] < heap[below]) below++;
        if (heap[below] >= last) break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = last;
}

/* The different times at which events of each thread begin or end, and the innermost event from then on: the last that
 * has begun, or what is around it and has not ended. Bounds get where the times of each thread end; returns -1 for an
 * event that ends before it starts. There is room for as many open ends as events, and for twice as many times. */
EXPORT int64_t enclosing_segments(int64_t threads, const int64_t *first, const int64_t *until, const int64_t *start,
                                  const int64_t *end, int64_t *open, int64_t *time, int64_t *bounds,
                                  const int32_t *parent, int32_t *inner) {
    int64_t found = 0;
    for (int64_t thread = 0; thread < threads; thread++) {
        int64_t at = -1, next = first[thread], size = 0;
        while (next < until[thread] || size) {
            int64_t now = !size || (next < until[thread] && start[next] < open[0]) ? start[next] : open[0];
            for (; next < until[thread] && start[next] == now; next++) {
                if (end[next] < now) return -1;
                push(open, size++, end[next]);
                at = next;
            }
            while (size && open[0] == now) pop(open, size--);
            while (at >= 0 && end[at] <= now) at = parent[at];
            time[found] = now;
            inner[found++] = (int32_t)at;
        }
        bounds[thread] = found;
    }
    return found;
}

/* What each event says, else the innermost one around it that says anything: `own` is NOTHING where it does not. */
EXPORT void enclosing_inherited(int64_t count, const int32_t *parent, const uint8_t *own, uint8_t *found) {
    for (int64_t i = 0; i < count; i++)
        found[i] = own[i] != NOTHING || parent[i] < 0 ? own[i] : found[parent[i]];
}
