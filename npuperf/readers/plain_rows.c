/* Rows of a table of an SQLite file to columns of numbers, without SQLite: its B-tree from left to right, page by page.
 *
 * Only what is plain is taken: pages and records as the file format has them (https://sqlite.org/fileformat2.html), no
 * record longer than a page, and in the wanted columns integers, or texts of digits, or NULL; of one of numbers also
 * what has a point. At the first thing that is anything else the table is refused (ROWS_ODD), and SQLite reads it, which
 * knows what to do with it. So what is taken here is what SQLite would give: tests/readers/test_plain_rows.py.
 *
 * Nothing is read of the file but whole pages of it, and nothing written outside of the columns that are given.
 */

#define _FILE_OFFSET_BITS 64
#define _XOPEN_SOURCE 700
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
#define EXPORT __attribute__((visibility("default")))
#define UNKNOWN (-1)
#define MOST_DIGITS 19

enum { ROWS_ODD = -1 };
enum { INTEGER = 0, NUMBER = 1 };
enum { HEADER = 100, INTERIOR = 5, LEAF = 13, MOST_DEPTH = 20, MOST_AT_ONCE = 16 };

typedef struct {
    uint8_t *bytes;       /* an interior page, or pages that follow each other, the first of which is `number` */
    int64_t number, count;
} Pages;

typedef struct {
    int file;
    int64_t size, usable, pages; /* bytes of a page, those that are used, and how many pages there are */
    Pages path[MOST_DEPTH];      /* interior pages down to the leaf, and which of their children is next */
    int next[MOST_DEPTH];
    int depth;
    Pages ahead;                 /* leaves, read several at once */
    const uint8_t *leaf;
    int cell, cells;
    int32_t fields, last;        /* of the table, and the last one that is wanted */
    int32_t *slots;              /* of each field its column, -1: not wanted */
    int32_t *kinds;              /* of each column */
    int32_t alias;               /* the field that is the row's number, -1: none */
} Rows;

/* The hash of the source that this was made of. */
EXPORT const char *rows_source(void) { return SOURCE_HASH; }

static uint64_t big_endian(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | at[i];
    return value;
}

/* A number of one to nine bytes, of which all but the last say that another follows; NULL where they reach beyond. */
static const uint8_t *varint(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    uint64_t found = 0;
    for (int i = 0; i < 9 && at < end; i++, at++) {
        if (i == 8) {
            *value = found << 8 | *at;
            return at + 1;
        }
        found = found << 7 | (*at & 0x7F);
        if (!(*at & 0x80)) {
            *value = found;
            return at + 1;
        }
    }
    return NULL;
}

static int read_all(int file, uint8_t *into, int64_t bytes, int64_t from) {
    while (bytes) {
        ssize_t got = pread(file, into, (size_t)bytes, (off_t)from);
        if (got <= 0) return 0;
        into += got;
        from += got;
        bytes -= got;
    }
    return 1;
}

/* Read pages from `number` on. */
static int read_pages(const Rows *r, Pages *into, int64_t number, int64_t count) {
    into->number = 0;
    if (!read_all(r->file, into->bytes, count * r->size, (number - 1) * r->size)) return 0;
    into->number = number;
    into->count = count;
    return 1;
}

/* A page, where it is not read yet with those behind it: twice as many as the last time if it follows those. */
static const uint8_t *page(Rows *r, int64_t number) {
    Pages *ahead = &r->ahead;
    if (number < 2 || number > r->pages) return NULL;
    if (!ahead->number || number < ahead->number || number >= ahead->number + ahead->count) {
        int64_t end = ahead->number + ahead->count, count = 1;
        if (ahead->number && number >= end && number < end + MOST_AT_ONCE) count = 2 * ahead->count;
        if (count > MOST_AT_ONCE) count = MOST_AT_ONCE;
        if (count > r->pages - number + 1) count = r->pages - number + 1;
        if (!read_pages(r, ahead, number, count)) return NULL;
    }
    return ahead->bytes + (number - ahead->number) * r->size;
}

/* Go down to the first leaf below a page. */
static int descend(Rows *r, int64_t number) {
    for (;;) {
        const uint8_t *at = page(r, number);
        if (!at) return 0;
        int cells = (int)big_endian(at + 3, 2), interior = at[0] == INTERIOR;
        if ((!interior && at[0] != LEAF) || (interior ? 12 : 8) + 2 * cells > r->usable) return 0;
        if (!cells && (interior || r->depth)) return 0;
        if (!interior) {
            r->leaf = at;
            r->cells = cells;
            r->cell = 0;
            return 1;
        }
        if (r->depth == MOST_DEPTH) return 0;
        Pages *copy = &r->path[r->depth];
        if (!copy->bytes && !(copy->bytes = malloc((size_t)r->size))) return 0;
        memcpy(copy->bytes, at, (size_t)r->size);
        copy->count = cells;
        int64_t place = (int64_t)big_endian(at + 12, 2);
        if (place + 4 > r->usable) return 0;
        number = (int64_t)big_endian(at + place, 4);
        r->next[r->depth++] = 1;
    }
}

/* Go on to the next leaf: 1, 0 where there is none, ROWS_ODD. */
static int next_leaf(Rows *r) {
    r->leaf = NULL;
    while (r->depth) {
        const Pages *above = &r->path[r->depth - 1];
        int child = r->next[r->depth - 1]++;
        if (child > above->count) {
            r->depth--;
            continue;
        }
        int64_t place = child == above->count ? 8 : (int64_t)big_endian(above->bytes + 12 + 2 * child, 2);
        if (place + 4 > r->usable) return ROWS_ODD;
        return descend(r, (int64_t)big_endian(above->bytes + place, 4)) ? 1 : ROWS_ODD;
    }
    return 0;
}

static int digits(const uint8_t *at, int64_t count, int64_t *value) {
    uint64_t found = 0;
    if (count < 1 || count > MOST_DIGITS) return 0;
    for (int64_t i = 0; i < count; i++) {
        if (at[i] < '0' || at[i] > '9') return 0;
        found = found * 10 + (uint64_t)(at[i] - '0');
    }
    *value = (int64_t)found;
    return found <= INT64_MAX;
}

/* How many bytes a value takes, by its type; 10 and 11 are nobody's. */
static int64_t bytes_of(uint64_t type) {
    static const int64_t fixed[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, -1, -1};
    return type < 12 ? fixed[type] : (int64_t)(type - 12) / 2;
}

static int integer(uint64_t type, const uint8_t *at, int64_t *value) {
    static const int64_t extended[] = {0, 56, 48, 40, 32, 16, 0}; /* by so many bits, and back, which keeps the sign */
    if (type >= 1 && type <= 6) {
        *value = (int64_t)(big_endian(at, (int)bytes_of(type)) << extended[type]) >> extended[type];
        return 1;
    }
    *value = type == 9;
    return type == 8 || type == 9;
}

static int put(const Rows *r, int32_t column, void *const *out, int64_t row, uint64_t type, const uint8_t *at) {
    int64_t whole = UNKNOWN;
    int is_whole = integer(type, at, &whole);
    if (r->kinds[column] == NUMBER) {
        double number = (double)whole;
        if (type == 7) {
            uint64_t bits = big_endian(at, 8);
            memcpy(&number, &bits, 8);
        } else if (!is_whole && type) {
            return 0;
        }
        ((float *)out[column])[row] = type ? (float)number : NAN;
        return 1;
    }
    if (!type) whole = UNKNOWN;
    else if (!is_whole && !(type >= 13 && type % 2 && digits(at, bytes_of(type), &whole))) return 0;
    ((int64_t *)out[column])[row] = whole;
    return 1;
}

/* Write one row: its record is a header, with the header's size and the type of each value, and the values. */
static int take_row(const Rows *r, int64_t place, void *const *out, int64_t row) {
    const uint8_t *end = r->leaf + r->usable, *at = r->leaf + place;
    uint64_t size, number, head, type;
    if (!(at = varint(at, end, &size)) || !(at = varint(at, end, &number))) return 0;
    if (size > (uint64_t)(end - at) || size > (uint64_t)r->usable - 35) return 0; /* the rest lies elsewhere */
    end = at + size;
    const uint8_t *types = varint(at, end, &head);
    if (!types || head > size || types > at + head) return 0;
    const uint8_t *value = at + head, *last = at + head;
    int32_t field = 0;
    for (; types < last; field++) {
        if (*types < 0x80) type = *types++;
        else if (!(types = varint(types, last, &type))) return 0;
        if (type > UINT32_MAX || bytes_of(type) < 0 || bytes_of(type) > end - value) return 0;
        int32_t column = field < r->fields ? r->slots[field] : -1;
        if (column >= 0) {
            if (field == r->alias && !type) ((int64_t *)out[column])[row] = (int64_t)number;
            else if (field == r->alias || !put(r, column, out, row, type, value)) return 0;
        }
        value += bytes_of(type);
    }
    return value == end && field > r->last;
}

EXPORT void rows_end(Rows *r) {
    for (int i = 0; i < MOST_DEPTH; i++) free(r->path[i].bytes);
    free(r->ahead.bytes);
    free(r->slots);
    free(r->kinds);
    free(r);
}

/* How many pages there are and how large, by the file's header; the file has `bytes`. */
static int understands(Rows *r, int64_t bytes) {
    uint8_t head[HEADER];
    if (bytes < HEADER || !read_all(r->file, head, HEADER, 0) || memcmp(head, "SQLite format 3", 16)) return 0;
    int64_t size = (int64_t)big_endian(head + 16, 2), told = (int64_t)big_endian(head + 28, 4);
    r->size = size == 1 ? 65536 : size;
    if (r->size < 512 || r->size & (r->size - 1)) return 0;
    r->usable = r->size - head[20];
    r->pages = bytes / r->size;
    int is_told = told && !memcmp(head + 24, head + 92, 4); /* else an old writer left it behind */
    if (is_told && told > r->pages) return 0;
    if (is_told) r->pages = told;
    return r->usable >= 480 && big_endian(head + 56, 4) == 1; /* texts are UTF-8 */
}

/* Begin to read the table at page `root`; NULL where it is not plain. */
EXPORT Rows *rows_begin(int32_t file, int64_t bytes, int64_t root, int32_t fields, const int32_t *slots,
                        int32_t columns, const int32_t *kinds, int32_t alias) {
    Rows *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->file = file;
    r->fields = fields;
    r->alias = alias;
    if (understands(r, bytes)) {
        r->slots = malloc(((size_t)fields + 1) * sizeof *slots);
        r->kinds = malloc(((size_t)columns + 1) * sizeof *kinds);
        r->ahead.bytes = malloc((size_t)(MOST_AT_ONCE * r->size));
    }
    if (r->slots && r->kinds && r->ahead.bytes) {
        memcpy(r->slots, slots, (size_t)fields * sizeof *slots);
        memcpy(r->kinds, kinds, (size_t)columns * sizeof *kinds);
        for (int32_t i = 0; i < fields; i++)
            if (slots[i] >= 0) r->last = i;
        if (descend(r, root)) return r;
    }
    rows_end(r);
    return NULL;
}

/* About how many rows there are, as if all pages were as full as the first ones; asked before any is read. */
EXPORT int64_t rows_expected(const Rows *r) {
    int64_t found = r->cells;
    for (int i = 0; i < r->depth; i++) {
        if (found > INT64_MAX / (r->path[i].count + 1)) return INT64_MAX;
        found *= r->path[i].count + 1;
    }
    return found;
}

/* Write up to `most` rows; returns how many, 0 where there are no more, ROWS_ODD. */
EXPORT int64_t rows_read(Rows *r, int64_t most, void *const *out) {
    int64_t row = 0;
    while (row < most && r->leaf) {
        if (r->cell == r->cells) {
            if (next_leaf(r) < 0) return ROWS_ODD;
            continue;
        }
        int64_t place = (int64_t)big_endian(r->leaf + 8 + 2 * r->cell++, 2);
        if (place >= r->usable || !take_row(r, place, out, row++)) return ROWS_ODD;
    }
    return row;
}
