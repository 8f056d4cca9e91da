/* Rows of a table to columns of numbers and codes of words, without an object for each cell: of text, and of SQLite.
 *
 * Only what is plain is taken, and the whole is refused at the first thing that is anything else: tests/readers/
 * test_plain_rows.py and test_db.py hold what is taken together with what the other ways make of it.
 *
 * Text: cells without quotes, decimals, times of at most three places, short words of ASCII, as many cells in each row
 * as there are headers; else Arrow reads it, or what salvages rows (table.py). Nothing is read outside of text[0, size),
 * and nothing written outside of the arrays that are given.
 *
 * SQLite: integers of 64 bits, as digits, too, which exporters write, and in the last column, where that is one of
 * numbers, numbers and NULL; else sqlite.py reads row by row. SQLite is not linked with: whoever calls brings its
 * functions, of the library that Python has loaded.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LATEST_NS 4000000000000000000LL
#define NO_TIME INT64_MIN
#define UNKNOWN (-1)
#define UNSET 4294967295LL /* of an unsigned field */
#define MOST_BYTES 0x1p53  /* more than any device has */
#define EXACT (1LL << 53)  /* integers below are doubles */
#define MOST_DIGITS 18     /* of 19 not all fit */
#define LONGEST_WORD 512
#define WORDS 8192         /* of a column; half of them are used at most */
#define EXPORT __attribute__((visibility("default")))

enum { REFUSED = -1 };
enum { TIME, BYTES, WHOLE, WORD };

/* A wanted column; _Wanted in table.py. Words stand one behind the other in ``text``, each up to its end. */
typedef struct {
    int64_t place; /* among the cells of a row; columns are in this order */
    int64_t kind, scale;
    int64_t *numbers;
    int32_t *codes;
    char *text;
    int32_t *ends, *table; /* code + 1 by hash, 0: none */
    int64_t count, room;   /* words, and bytes that text has room for */
    int64_t needless;      /* rows with one of the first so many words are left out */
} Column;

static const double TENS[] = {1e0, 1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                              1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

/* Add the digits that stand here, ``*p`` to the first that is none; how many, -1: none, or more than fit. */
static inline int64_t digits(const char **p, int64_t *sum) {
    const char *from = *p;
    uint64_t found = (uint64_t)*sum;
    while ((unsigned char)(**p - '0') < 10) found = 10 * found + (uint64_t)(*(*p)++ - '0');
    *sum = (int64_t)found;
    return *p == from || *p - from > MOST_DIGITS ? REFUSED : *p - from;
}

/* The same of a whole number, in front of which no zeros stand. */
static inline int64_t whole_digits(const char **p, int64_t *sum) {
    int zero = **p == '0';
    int64_t n = digits(p, sum);
    return n < 0 || (zero && n > 1) ? 0 : n;
}

/* Whether a number that has ended is followed by the end of its cell; times have a tab behind them. */
static inline int ends(const char **p, char delimiter) {
    if (**p == '\t') (*p)++;
    return **p == delimiter || **p == '\n' || **p == '\r';
}

/* Whether the cell says that nothing was recorded. */
static inline int is_nothing(const char **p, char delimiter) {
    const char *from = *p;
    if (from[0] == 'N' && from[1] == '/' && from[2] == 'A') *p += 3;
    if (ends(p, delimiter)) return 1;
    *p = from;
    return 0;
}

/* Microseconds to ns. */
static inline int as_time(const char **p, int64_t *value) {
    int64_t whole = 0, rest = 0, places = 3;
    if (!whole_digits(p, &whole) || whole > LATEST_NS / 1000) return 0;
    if (**p == '.') {
        (*p)++;
        places = digits(p, &rest);
        if (places < 0 || places > 3) return 0;
    }
    *value = 1000 * whole + rest * (places == 1 ? 100 : places == 2 ? 10 : 1);
    return *value < LATEST_NS;
}

/* Units of so many bytes to bytes: as the nearest double, or where that is no double, what it is exactly. */
static inline int as_bytes(const char **p, int64_t scale, int64_t *value) {
    int64_t sum = 0, negative = **p == '-', places = 0, n;
    *p += negative;
    n = whole_digits(p, &sum);
    if (!n) return 0;
    if (**p == '.') {
        (*p)++;
        places = digits(p, &sum);
        if (places < 0 || n + places > MOST_DIGITS) return 0;
    }
    if (sum < EXACT) {
        double found = rint((double)sum / TENS[places] * (double)scale);
        if (found >= MOST_BYTES) return 0;
        *value = (int64_t)found;
    } else {
        int64_t fives = 1;
        for (int64_t i = 0; i < places; i++) {
            fives *= 5;
            if (scale & 1) return 0;
            scale /= 2;
        }
        if (sum % fives || sum / fives >= EXACT / scale) return 0;
        *value = sum / fives * scale;
    }
    if (negative && sum) *value = UNKNOWN;
    return 1;
}

static inline int as_whole(const char **p, int64_t *value) {
    int64_t sum = 0, negative = **p == '-';
    *p += negative;
    if (!whole_digits(p, &sum)) return 0;
    *value = sum == UNSET && !negative ? UNKNOWN : negative ? -sum : sum;
    return 1;
}

static inline int is_word(const Column *c, int32_t code, const char *p, int64_t n) {
    int64_t begin = code ? c->ends[code - 1] : 0;
    return c->ends[code] - begin == n && !memcmp(c->text + begin, p, (size_t)n);
}

/* The number of a word, a new one if it is new; -1: it is odd, or one too many. */
EXPORT int32_t rows_word(Column *c, const char *p, int64_t n) {
    uint32_t hash = 2166136261u;
    for (int64_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)p[i]) * 16777619u;
    hash ^= hash >> 15;
    for (;; hash++) {
        int32_t *place = &c->table[hash % WORDS];
        if (*place && is_word(c, *place - 1, p, n)) return *place - 1;
        if (*place) continue;
        if (n > LONGEST_WORD || c->count == WORDS / 2) return REFUSED;
        int64_t begin = c->count ? c->ends[c->count - 1] : 0;
        if (begin + n > c->room) return REFUSED;
        for (int64_t i = 0; i < n; i++)
            if (p[i] < ' ' || p[i] > '~') return REFUSED; /* no ASCII is less than nothing, or more than that */
        memcpy(c->text + begin, p, (size_t)n);
        c->ends[c->count] = (int32_t)(begin + n);
        return (*place = (int32_t)++c->count) - 1;
    }
}

static inline int read_cell(Column *c, const char **p, const char *stops, char delimiter, int64_t row) {
    int64_t *value = c->numbers + row;
    if (c->kind == WORD) {
        const char *from = *p;
        int32_t before = row ? c->codes[row - 1] : 0, code;
        while (!stops[(unsigned char)**p]) (*p)++;
        code = before < c->count && is_word(c, before, from, *p - from) ? before : rows_word(c, from, *p - from);
        c->codes[row] = code;
        return code != REFUSED;
    }
    *value = c->kind == TIME ? NO_TIME : UNKNOWN;
    if (is_nothing(p, delimiter)) return 1;
    int read = c->kind == TIME ? as_time(p, value) : c->kind == BYTES ? as_bytes(p, c->scale, value) : as_whole(p, value);
    return read && ends(p, delimiter);
}

/* What Column looks like: of another one nothing may be written. */
EXPORT int64_t rows_layout(void) { return (int64_t)sizeof(Column) * WORDS; }

/* Read rows of ``width`` cells, the last of which ends with text; return how many are kept, fewer than ``most``. */
EXPORT int64_t rows_read(const char *text, int64_t size, char delimiter, int64_t width, Column *columns, int64_t count,
                         int64_t most) {
    char stops[256] = {0};
    const char *p = text, *end = text + size;
    int64_t row = 0;
    stops[(unsigned char)delimiter] = stops['\n'] = stops['\r'] = stops['"'] = 1;
    if (size && end[-1] != '\n') return REFUSED; /* which ends every search */
    for (; p < end; row++) {
        Column *next = columns, *last = columns + count;
        int64_t needless = 0;
        if (row == most) return REFUSED;
        for (int64_t place = 0; place < width; place++, p++) {
            if (next < last && next->place == place && !needless) {
                if (!read_cell(next, &p, stops, delimiter, row)) return REFUSED;
                needless = next->kind == WORD && next->codes[row] < next->needless;
                next++;
            } else {
                while (!stops[(unsigned char)*p]) p++;
            }
            if (place + 1 == width && *p == '\r') p++; /* nor is it the last */
            if (*p != (place + 1 < width ? delimiter : '\n')) return REFUSED;
        }
        row -= needless;
    }
    return row;
}

/* -- SQLite. */

#define SQLITE_ROW 100
#define SQLITE_DONE 101

enum { SQLITE_INTEGER = 1, SQLITE_FLOAT, SQLITE_TEXT, SQLITE_BLOB, SQLITE_NULL };

/* Functions whose names begin with sqlite3_, and sqlite3_column_ from the second on; _CALLED in sqlite.py. */
typedef struct {
    int (*step)(void *);
    int (*type)(void *, int);
    int64_t (*int64)(void *, int);
    double (*real)(void *, int);
    const unsigned char *(*text)(void *, int);
    int (*bytes)(void *, int);
} SQLite;

static int digits_alone(const SQLite *sqlite, void *statement, int column, int64_t *value) {
    const unsigned char *text = sqlite->text(statement, column);
    int size = sqlite->bytes(statement, column);
    if (!text || size < 1 || size > MOST_DIGITS) return 0;
    *value = 0;
    for (int i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        *value = *value * 10 + (text[i] - '0');
    }
    return 1;
}

/* Read up to `room` rows; return how many, fewer where there are no more. `numbers`: for one column more, or NULL. */
EXPORT int64_t cells_read(const SQLite *sqlite, void *statement, int64_t *const *integers, int columns,
                          double *numbers, int64_t room) {
    for (int64_t row = 0; row < room; row++) {
        int stepped = sqlite->step(statement);
        if (stepped == SQLITE_DONE) return row;
        if (stepped != SQLITE_ROW) return REFUSED;
        for (int i = 0; i < columns; i++) {
            int type = sqlite->type(statement, i);
            if (type == SQLITE_INTEGER)
                integers[i][row] = sqlite->int64(statement, i);
            else if (type != SQLITE_TEXT || !digits_alone(sqlite, statement, i, &integers[i][row]))
                return REFUSED;
        }
        if (numbers) {
            int type = sqlite->type(statement, columns);
            if (type != SQLITE_INTEGER && type != SQLITE_FLOAT && type != SQLITE_NULL) return REFUSED;
            numbers[row] = type == SQLITE_NULL ? NAN : sqlite->real(statement, columns);
        }
    }
    return room;
}
