/* Lines of a CSV file to columns, without a cell in between.
 *
 * Only what is plain is taken: lines of as many cells as there are headers, quotes around whole cells and within one
 * line, times in µs with up to six decimals, whole numbers, short decimals, and words for "not recorded". At the first
 * thing that is anything else the table is refused (CELLS_ODD), and table.py reads it otherwise. So what is taken here
 * is what Arrow makes of the same cells: tests/readers/test_plain_cells.py holds the two together.
 *
 * Nothing is read outside of text[0, size), whose last character ends a line, and nothing written outside of the columns.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define NO_TIME INT64_MIN
#define LATEST_NS 4000000000000000000ULL
#define UNKNOWN (-1)
#define UNSET 4294967295ULL
#define MOST_DIGITS 19
#define MOST_EXACT (1ULL << 53) /* whole numbers up to it are doubles, and powers of ten up to the 22nd */
#define MOST_PLACES 22

enum { CELLS_ODD = -1, CELLS_NO_MEMORY = -2 };
enum { SKIPPED = 0, TIME, INTEGER, DECIMAL, TEXT };

/* Texts as they stand in the file, with their quotes, numbered as they come. */
typedef struct {
    uint64_t *hashes;
    int32_t *codes;  /* code + 1 in each place, 0: empty */
    uint64_t places; /* a power of two */
    char *bytes;     /* all texts, one behind the other */
    int64_t used, room;
    int64_t *ends;   /* where each text ends in bytes */
    int64_t count, ends_room;
} Words;

typedef struct {
    int32_t columns;
    char delimiter;
    uint64_t seed;
    int32_t *kinds;
    Words *words;
} Cells;

/* The hash of the source that this was made of. */
EXPORT const char *cells_source(void) { return SOURCE_HASH; }

/* ---- texts ---- */

INLINE uint64_t eight(const char *p) {
    uint64_t some;
    memcpy(&some, p, 8);
    return some;
}

/* Up to eight characters as a number; of texts of one length no two are the same. */
INLINE uint64_t few(const char *p, int64_t n) {
    const unsigned char *c = (const unsigned char *)p;
    uint32_t first, last;
    if (n < 4) return n ? c[0] | (uint64_t)c[n / 2] << 8 | (uint64_t)c[n - 1] << 16 : 0;
    memcpy(&first, p, 4);
    memcpy(&last, p + n - 4, 4);
    return first | (uint64_t)last << 32;
}

INLINE uint64_t hash_of(const char *p, int64_t n, uint64_t seed) {
    const char *end = p + n;
    uint64_t h = seed ^ (uint64_t)n * 0x9E3779B97F4A7C15ULL;
    for (; end - p > 8; p += 8) {
        h = (h ^ eight(p)) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 32;
    }
    h = (h ^ (n < 8 ? few(p, n) : eight(end - 8))) * 0xC4CEB9FE1A85EC53ULL;
    return h ^ h >> 29;
}

static int more_places(Words *w) {
    uint64_t places = w->places ? 2 * w->places : 256;
    uint64_t *hashes = malloc(places * sizeof *hashes);
    int32_t *codes = calloc(places, sizeof *codes);
    if (!hashes || !codes) {
        free(hashes);
        free(codes);
        return 0;
    }
    for (uint64_t i = 0; i < w->places; i++) {
        if (!w->codes[i]) continue;
        uint64_t at = w->hashes[i] & (places - 1);
        while (codes[at]) at = (at + 1) & (places - 1);
        codes[at] = w->codes[i];
        hashes[at] = w->hashes[i];
    }
    free(w->hashes);
    free(w->codes);
    w->hashes = hashes;
    w->codes = codes;
    w->places = places;
    return 1;
}

static int keep_word(Words *w, const char *p, int64_t n) {
    if (w->count == w->ends_room) {
        int64_t room = 2 * w->ends_room + 64;
        int64_t *ends = realloc(w->ends, (size_t)room * sizeof *ends);
        if (!ends) return 0;
        w->ends = ends;
        w->ends_room = room;
    }
    if (w->used + n >= w->room) { /* there is room for an empty text, too */
        int64_t room = 2 * w->room + n + 4096;
        char *bytes = realloc(w->bytes, (size_t)room);
        if (!bytes) return 0;
        w->bytes = bytes;
        w->room = room;
    }
    memcpy(w->bytes + w->used, p, (size_t)n);
    w->used += n;
    w->ends[w->count++] = w->used;
    return w->count < INT32_MAX;
}

/* The number of a text, which is new or not; below 0 without memory. */
static int32_t code_of(Words *w, const char *p, int64_t n, uint64_t seed) {
    if (2 * (uint64_t)w->count >= w->places && !more_places(w)) return CELLS_NO_MEMORY;
    uint64_t hash = hash_of(p, n, seed), at = hash & (w->places - 1);
    for (; w->codes[at]; at = (at + 1) & (w->places - 1)) {
        int32_t code = w->codes[at] - 1;
        int64_t begin = code ? w->ends[code - 1] : 0;
        if (w->hashes[at] == hash && w->ends[code] - begin == n && !memcmp(w->bytes + begin, p, (size_t)n)) return code;
    }
    if (!keep_word(w, p, n)) return CELLS_NO_MEMORY;
    w->hashes[at] = hash;
    w->codes[at] = (int32_t)w->count;
    return (int32_t)w->count - 1;
}

/* ---- cells: each of these returns where its cell ends, or NULL where it is not plain ---- */

INLINE int ends(char c, char delimiter) { return c == delimiter || c == '\n' || c == '\r'; }

/* Go to the next quote, line end or delimiter, or to any other character up to a quote; eight at once while there are. */
INLINE const char *next_low(const char *p, const char *last, char delimiter) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = 0x0101010101010101ULL, high = 0x8080808080808080ULL;
    for (; last - p >= 8; p += 8) {
        uint64_t v = eight(p), end = v ^ (ones * (unsigned char)delimiter);
        /* of each the lowest bit is right: only what is above it may be set by what was borrowed */
        uint64_t found = (((v - ones * ('"' + 1)) & ~v) | ((end - ones) & ~end)) & high;
        if (found) return p + (__builtin_ctzll(found) >> 3);
    }
#endif
    while (p < last && (unsigned char)*p > '"' && *p != delimiter) p++; /* a line end stands before the last */
    return p;
}

INLINE const char *to_end(const char *p, const char *last, char delimiter) {
    if (*p == '"') {
        for (p++;; p++) {
            p = next_low(p, last, delimiter);
            if (*p == '\n' || *p == '\r') return NULL;
            if (*p == '"' && *++p != '"') return ends(*p, delimiter) ? p : NULL;
        }
    }
    for (;; p++) {
        p = next_low(p, last, delimiter);
        if (ends(*p, delimiter)) return p;
        if (*p == '"') return NULL;
    }
}

/* What stands for "not recorded" in place of a number. */
static const char *nothing(const char *p, char delimiter) {
    static const char *const words[] = {"", "N/A", "NA", "n/a", "None", "null", "NULL", "nan", "NaN", "-", "N/A\t", "\t"};
    const char *end = p;
    while (!ends(*end, delimiter)) end++;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == (size_t)(end - p) && !memcmp(words[i], p, (size_t)(end - p))) return end;
    return NULL;
}

INLINE int is_digit(char c) { return (unsigned char)(c - '0') < 10; }

/* Digits with a point among them or without, as a whole number and how many of them stand behind the point. */
INLINE const char *digits(const char *p, uint64_t *whole, int *places) {
    const char *begin = p, *point = NULL;
    uint64_t found = 0;
    for (; is_digit(*p); p++) found = found * 10 + (uint64_t)(*p - '0');
    if (p == begin) return NULL;
    if (*p == '.') {
        point = p++;
        for (; is_digit(*p); p++) found = found * 10 + (uint64_t)(*p - '0');
        if (p == point + 1) return NULL;
    }
    if (p - begin - !!point > MOST_DIGITS) return NULL; /* else less than 2^64 */
    *whole = found;
    *places = point ? (int)(p - point - 1) : 0;
    return p;
}

/* Up to six digits behind a point, in millionths. */
INLINE const char *millionths(const char *p, uint64_t *found) {
    const char *begin = p;
    uint64_t value = 0, by = 1000000;
    for (; is_digit(*p) && by > 1; p++) value += (by /= 10) * (uint64_t)(*p - '0');
    *found = value;
    return p == begin || is_digit(*p) ? NULL : p;
}

/* What lies halfway between two ns becomes the even one, as Arrow rounds decimals. */
static const char *time_at(const char *p, char delimiter, int64_t *ns) {
    uint64_t whole = 0, rest = 0;
    int quoted = *p == '"' && is_digit(p[1]);
    const char *end = p += quoted;
    for (; is_digit(*end); end++) whole = whole * 10 + (uint64_t)(*end - '0');
    *ns = NO_TIME;
    if (end == p) return nothing(p, delimiter);
    if (end - p > MOST_DIGITS || (*end == '.' && !(end = millionths(end + 1, &rest)))) return NULL;
    if (whole >= LATEST_NS / 1000) return NULL;
    whole = whole * 1000 + rest / 1000;
    rest %= 1000;
    *ns = (int64_t)(whole + (rest > 500 || (rest == 500 && whole % 2)));
    if (*end == '\t') end++;
    return !quoted ? end : *end == '"' ? end + 1 : NULL;
}

static const char *integer_at(const char *p, char delimiter, int64_t *value) {
    uint64_t whole;
    int places;
    const char *end = digits(p, &whole, &places);
    *value = UNKNOWN;
    if (!end) return nothing(p, delimiter);
    if (places || whole > INT64_MAX) return NULL;
    if (whole != UNSET) *value = (int64_t)whole;
    return end;
}

static const char *decimal_at(const char *p, char delimiter, float *value) {
    static const double tens[MOST_PLACES + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t whole, bits;
    int places;
    const char *end = digits(p, &whole, &places);
    *value = NAN;
    if (!end) return nothing(p, delimiter);
    if (whole > MOST_EXACT || places > MOST_PLACES) return NULL;
    double found = places && whole ? (double)whole / tens[places] : (double)whole;
    memcpy(&bits, &found, sizeof bits);
    /* halfway between two of single precision: the decimal itself may lie on either side */
    if ((bits & 0x1FFFFFFF) == 0x10000000) return NULL;
    *value = (float)found;
    return end;
}

/* ---- lines ---- */

EXPORT void cells_end(Cells *c) {
    for (int32_t i = 0; c->words && i < c->columns; i++) {
        free(c->words[i].hashes);
        free(c->words[i].codes);
        free(c->words[i].bytes);
        free(c->words[i].ends);
    }
    free(c->words);
    free(c->kinds);
    free(c);
}

/* Begin to read lines with so many cells of these kinds; NULL without memory. */
EXPORT Cells *cells_begin(int32_t columns, const int32_t *kinds, char delimiter, uint64_t seed) {
    Cells *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->columns = columns;
    c->delimiter = delimiter;
    c->seed = seed;
    c->kinds = malloc(((size_t)columns + 1) * sizeof *kinds);
    c->words = calloc((size_t)columns + 1, sizeof *c->words);
    if (!c->kinds || !c->words) {
        cells_end(c);
        return NULL;
    }
    memcpy(c->kinds, kinds, (size_t)columns * sizeof *kinds);
    return c;
}

static const char *cell(Cells *c, int32_t column, const char *p, const char *last, void *out, int64_t row) {
    const char *end;
    switch (c->kinds[column]) {
    case TIME:
        return time_at(p, c->delimiter, (int64_t *)out + row);
    case INTEGER:
        return integer_at(p, c->delimiter, (int64_t *)out + row);
    case DECIMAL:
        return decimal_at(p, c->delimiter, (float *)out + row);
    case TEXT:
        end = to_end(p, last, c->delimiter);
        if (!end || (((int32_t *)out)[row] = code_of(&c->words[column], p, end - p, c->seed)) < 0) return NULL;
        return end;
    default:
        return to_end(p, last, c->delimiter);
    }
}

/* Read whole lines; column i is written to out[i] from `row` on. Returns how many lines, or CELLS_ODD. A line has a
 * character per column at least, so there is room for one more than size / columns. */
EXPORT int64_t cells_read(Cells *c, const char *text, int64_t size, int64_t row, void *const *out) {
    const char *p = text, *last = text + size;
    int64_t before = row;
    if (!size || last[-1] != '\n') return CELLS_ODD;
    for (; p < last; row++) {
        if (*p == '\n' || *p == '\r') return CELLS_ODD; /* an empty line is none for Arrow */
        for (int32_t i = 0; i < c->columns; i++) {
            if (!(p = cell(c, i, p, last, out[i], row))) return CELLS_ODD;
            if (i + 1 < c->columns && *p++ != c->delimiter) return CELLS_ODD;
        }
        if (*p == '\r') p++;
        if (*p++ != '\n') return CELLS_ODD;
    }
    return row - before;
}

/* How many texts a column has so far. */
EXPORT int64_t cells_count(const Cells *c, int32_t column) { return c->words[column].count; }

/* The texts of a column from number `first` on, and where each of them ends, from the first one's begin. */
EXPORT const char *cells_words(const Cells *c, int32_t column, int64_t first, int64_t *into) {
    const Words *w = &c->words[column];
    int64_t begin = first ? w->ends[first - 1] : 0;
    for (int64_t i = first; i < w->count; i++) into[i - first] = w->ends[i] - begin;
    return w->bytes + begin;
}
