/* Events of a Chrome trace to columns, without an object for each of them.
 *
 * Only what is plain is taken: JSON as its grammar has it, keys once per object and without escapes, integers of 64
 * bits, times as decimals, texts where texts are expected. At the first thing that is anything else the whole piece is
 * refused (PLAIN_ODD), and the decoder in pieces.py, which knows what to do with it, reads it. So what is taken here
 * must be what that decoder would have made of it: tests/readers/test_plain_events.py holds the two together.
 *
 * Nothing is read outside of text[0, size), and nothing written outside of the arrays that are given.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LATEST_NS 4000000000000000000LL
#define MOST_DEPTH 64
#define NO_RANK 4294967295LL
#define LONGEST_NUMBER 30 /* characters: of more, readers differ in what they make of it */
#define LONGEST_ID 64
#define MOST_WHOLE 16 /* digits of whole microseconds */
#define STEP_BYTES 32
#define MOST_STEPS 1024
#define MOST_NEXT 16 /* steps that may follow one: more are not looked through for each key */
#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif
/* Small, and called for every value: what calling them costs is a tenth of reading. */
#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))

enum { PLAIN_OK = 0, PLAIN_CLOSED = 1, PLAIN_ODD = -1, PLAIN_NO_MEMORY = -2 };
enum { WORD_NAME, WORD_CAT, WORD_TASK_TYPE, WORD_STACK, WORD_OPERATION, WORD_DTYPE, WORD_ARROW, WORDS };
enum { COLUMN_WORDS = WORD_DTYPE + 1 };
enum {
    START, LENGTH, PID, TID, CONNECTION, MOVED, PARTNER, ELEMENTS, CORRELATION, EXTERNAL, STREAM, DEVICE, NUMBERS
};
enum { FLOW_ID, FLOW_PID, FLOW_TID, FLOW_TIME, FLOW_START, FLOW_ARROW, FLOW_BEGIN, FLOW_END, FLOWS };

/* ---- words: texts as they stand between their quotes, numbered as they come ---- */

typedef struct {
    uint64_t *hashes;
    int32_t *codes;     /* code + 1 in each place, 0: empty */
    uint64_t places;    /* a power of two */
    uint64_t seed;
    char *bytes;        /* all words, one behind the other */
    int64_t used, room;
    int64_t *ends;      /* where each word ends in bytes */
    int64_t count, ends_room;
} Words;

/* A key as it stood before, and all around it from the value before it, or the brace, to its own value.
 *
 * Events are of few shapes. Those that were seen are a tree of steps, from which one is known by comparing its text
 * as a whole, which is what reading it had found. ``mask``: which of the bytes are the text's.
 */
typedef uint64_t Half __attribute__((vector_size(STEP_BYTES / 2)));
typedef struct Step {
    Half text[2], mask[2];
    const struct Step *next;  /* the latest of the steps that may follow this one */
    const struct Step *other; /* one that may be there instead of this one */
    int32_t size, slot;
} Step;

enum { STEP_EVENT, STEP_ARGS, STEP_UNKNOWN, FIRST_STEP }; /* what is before any key, and behind one that is no step */

typedef struct {
    Words words[WORDS];
    int64_t arrows;     /* the first so many words of WORD_ARROW are the categories that are wanted */
    Step steps[MOST_STEPS];
    int32_t known;      /* how many steps there are beyond FIRST_STEP */
    int crowded;        /* there were more than are kept */
} Reader;

static uint64_t eight(const char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

/* So many bytes as a number, which differs where they do. */
INLINE uint64_t up_to_eight(const char *p, int64_t n) {
    const unsigned char *bytes = (const unsigned char *)p;
    uint32_t first, last;
    if (n == 8) return eight(p);
    if (n < 4) return n ? (uint64_t)bytes[0] << 16 | (uint64_t)bytes[n / 2] << 8 | bytes[n - 1] : 0;
    memcpy(&first, p, 4);
    memcpy(&last, p + n - 4, 4);
    return (uint64_t)first << 32 | last;
}

static uint64_t hash_of(const char *p, int64_t n, uint64_t seed) {
    uint64_t h = seed ^ (uint64_t)n;
    for (; n > 8; p += 8, n -= 8) {
        h = (h ^ eight(p)) * 0xFF51AFD7ED558CCDULL;
        h ^= h >> 32;
    }
    h = (h ^ up_to_eight(p, n)) * 0xC4CEB9FE1A85EC53ULL;
    return h ^ (h >> 29);
}

static int64_t word_begin(const Words *w, int64_t code) { return code ? w->ends[code - 1] : 0; }

static int is_word(const Words *w, int64_t code, const char *p, int64_t n) {
    int64_t begin = word_begin(w, code);
    return w->ends[code] - begin == n && !memcmp(w->bytes + begin, p, (size_t)n);
}

static int more_places(Words *w) {
    uint64_t places = w->places ? 2 * w->places : 1024;
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
        hashes[at] = w->hashes[i];
        codes[at] = w->codes[i];
    }
    free(w->hashes);
    free(w->codes);
    w->hashes = hashes;
    w->codes = codes;
    w->places = places;
    return 1;
}

static int more_room(Words *w, int64_t n) {
    if (w->used + n >= w->room) { /* even for the empty word, which is to lie somewhere */
        int64_t room = 2 * (w->used + n) + 4096;
        char *bytes = realloc(w->bytes, (size_t)room);
        if (!bytes) return 0;
        w->bytes = bytes;
        w->room = room;
    }
    if (w->count == w->ends_room) {
        int64_t room = 2 * w->ends_room + 256;
        int64_t *ends = realloc(w->ends, (size_t)room * sizeof *ends);
        if (!ends) return 0;
        w->ends = ends;
        w->ends_room = room;
    }
    return 1;
}

/* The word's number, a new one if it is new; -2 without memory. */
static int32_t code_of(Words *w, const char *p, int64_t n) {
    if (2 * (uint64_t)w->count >= w->places && !more_places(w)) return -2;
    uint64_t hash = hash_of(p, n, w->seed), at = hash & (w->places - 1);
    for (; w->codes[at]; at = (at + 1) & (w->places - 1))
        if (w->hashes[at] == hash && is_word(w, w->codes[at] - 1, p, n)) return w->codes[at] - 1;
    if (w->count >= INT32_MAX - 1 || !more_room(w, n)) return -2;
    memcpy(w->bytes + w->used, p, (size_t)n);
    w->used += n;
    w->ends[w->count] = w->used;
    w->hashes[at] = hash;
    w->codes[at] = (int32_t)++w->count;
    return (int32_t)w->count - 1;
}

/* ---- JSON ---- */

typedef enum { NONE, NUMBER, TEXT, WORD_NULL, WORD_BOOL, CONTAINER } Kind;

/* A value as it stands; of a text what is between its quotes. */
typedef struct {
    const char *at;
    int64_t size;
    Kind kind;
    int escaped;
} Token;

typedef struct {
    const char *at, *end;
    int odd; /* something is not plain; else, where nothing more could be read, the text ended */
} Text;

static int refuse(Text *t) {
    t->odd = 1;
    return 0;
}

static int blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

INLINE int skip_blanks(Text *t) {
    while (t->at < t->end && blank(*t->at)) t->at++;
    return t->at < t->end;
}

static int is_special(char c) { return c == '"' || c == '\\' || (unsigned char)c < ' '; }

/* Find the next quote, backslash or control character. */
INLINE const char *next_special(const char *p, const char *end) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = 0x0101010101010101ULL, high = 0x8080808080808080ULL;
    for (; end - p >= 8; p += 8) {
        uint64_t v = eight(p), quote = v ^ (ones * '"'), back = v ^ (ones * '\\');
        uint64_t found = (((quote - ones) & ~quote) | ((back - ones) & ~back) | ((v - ones * ' ') & ~v)) & high;
        if (found) return p + (__builtin_ctzll(found) >> 3); /* the lowest is right, those above may not be */
    }
#endif
    while (p < end && !is_special(*p)) p++;
    return p;
}

static int hexadecimal(const char *p) {
    for (int i = 0; i < 4; i++)
        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f') || (p[i] >= 'A' && p[i] <= 'F'))) return 0;
    return 1;
}

/* Whether these four digits are half of a character, of which the other half may be missing. */
static int is_half(const char *p) { return (p[0] | ' ') == 'd' && p[1] > '7'; }

/* Read on from the first backslash in a text, or control character, or from its end where it is cut. */
static int read_escaped(Text *t, Token *token, const char *p) {
    const char *end = t->end;
    for (;; p = next_special(p, end)) {
        if (p >= end) return 0;
        if (*p == '"') break;
        if (*p != '\\') return refuse(t);
        token->escaped = 1;
        if (end - p < 6) {
            if (end - p < 2) return 0;
            if (p[1] == 'u') return 0;
        }
        if (p[1] == 'u') {
            if (!hexadecimal(p + 2) || is_half(p + 2)) return refuse(t);
            p += 6;
        } else {
            if (!p[1] || !strchr("\"\\/bfnrt", p[1])) return refuse(t);
            p += 2;
        }
    }
    token->size = p - token->at;
    t->at = p + 1;
    return 1;
}

/* Read a text whose opening quote was read. */
INLINE int read_text(Text *t, Token *token) {
    const char *p = next_special(t->at, t->end);
    token->at = t->at;
    token->kind = TEXT;
    token->escaped = 0;
    if (p >= t->end || *p != '"') return read_escaped(t, token, p);
    token->size = p - token->at;
    t->at = p + 1;
    return 1;
}

INLINE const char *digits(const char *p, const char *end) {
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

INLINE int read_number(Text *t, Token *token) {
    const char *p = t->at, *end = t->end, *from;
    token->at = p;
    token->kind = NUMBER;
    token->escaped = 0;
    if (p < end && *p == '-') p++;
    from = p;
    p = digits(p, end);
    if (p < end && (p == from || (*from == '0' && p - from > 1))) return refuse(t);
    if (p < end && *p == '.') {
        from = ++p;
        p = digits(p, end);
        if (p < end && p == from) return refuse(t);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        if (++p < end && (*p == '+' || *p == '-')) p++;
        from = p;
        p = digits(p, end);
        if (p < end && (p == from || p - from > 2)) return refuse(t); /* beyond any time or count */
    }
    if (p >= end) return 0; /* it may go on */
    token->size = p - token->at;
    t->at = p;
    return token->size <= LONGEST_NUMBER || refuse(t);
}

static int read_literal(Text *t, Token *token, const char *literal, Kind kind) {
    int64_t size = (int64_t)strlen(literal);
    if (t->end - t->at < size) return memcmp(t->at, literal, (size_t)(t->end - t->at)) ? refuse(t) : 0;
    if (memcmp(t->at, literal, (size_t)size)) return refuse(t);
    token->at = t->at;
    token->size = size;
    token->kind = kind;
    token->escaped = 0;
    t->at += size;
    return 1;
}

INLINE int read_scalar(Text *t, Token *token) {
    switch (*t->at) {
    case '"': t->at++; return read_text(t, token);
    case 'n': return read_literal(t, token, "null", WORD_NULL);
    case 't': return read_literal(t, token, "true", WORD_BOOL);
    case 'f': return read_literal(t, token, "false", WORD_BOOL);
    default: return read_number(t, token);
    }
}

/* Read a key and the colon behind it, up to the value. */
INLINE int read_key(Text *t, Token *key) {
    if (!skip_blanks(t)) return 0;
    if (*t->at != '"') return refuse(t);
    t->at++;
    if (!read_text(t, key)) return 0;
    if (key->escaped) return refuse(t);
    if (!skip_blanks(t)) return 0;
    if (*t->at != ':') return refuse(t);
    t->at++;
    return skip_blanks(t);
}

/* Step behind what separates two members: 1 another follows, 2 it was the last one, 0 odd or at the end. */
INLINE int next_member(Text *t, char closing) {
    if (!skip_blanks(t)) return 0;
    if (*t->at == closing) {
        t->at++;
        return 2;
    }
    if (*t->at != ',') return refuse(t);
    t->at++;
    return skip_blanks(t);
}

/* The same behind the opening brace. */
static int first_member(Text *t, char closing) {
    if (!skip_blanks(t)) return 0;
    if (*t->at != closing) return 1;
    t->at++;
    return 2;
}

/* Step over a list or an object, of which nothing is wanted. */
static int skip_container(Text *t) {
    char closing[MOST_DEPTH];
    int depth = 0, more;
    Token token;
    for (;;) {
        if (!skip_blanks(t)) return 0;
        if (*t->at == '{' || *t->at == '[') {
            if (depth == MOST_DEPTH) return refuse(t);
            closing[depth++] = *t->at++ == '{' ? '}' : ']';
            if (!skip_blanks(t)) return 0;
            if (*t->at != closing[depth - 1]) {
                if (closing[depth - 1] == '}' && !read_key(t, &token)) return 0;
                continue;
            }
            t->at++;
            depth--;
        } else if (!read_scalar(t, &token)) {
            return 0;
        }
        while (depth && (more = next_member(t, closing[depth - 1])) != 1) {
            if (!more) return 0;
            depth--;
        }
        if (!depth) return 1;
        if (closing[depth - 1] == '}' && !read_key(t, &token)) return 0;
    }
}

/* Whether a list or an object begins: both braces are one but for a bit. */
INLINE int is_opening(char c) { return (c | ' ') == '{'; }

INLINE int read_value(Text *t, Token *token) {
    if (!is_opening(*t->at)) return read_scalar(t, token);
    token->kind = CONTAINER;
    return skip_container(t);
}

/* ---- events ---- */

enum {
    KEY_TS, KEY_DUR, KEY_PH, KEY_NAME, KEY_CAT, KEY_PID, KEY_TID, KEY_ID, KEY_ARGS, KEYS_OF_EVENT,
    ARG_CONNECTION = KEYS_OF_EVENT, ARG_TASK_TYPE, ARG_STACK, ARG_CORRELATION, ARG_EXTERNAL, ARG_STREAM, ARG_DEVICE,
    ARG_OPERATION, ARG_MOVED, ARG_NAME, ARG_LABELS, ARG_SORT_INDEX, ARG_MHZ, ARG_COLLECTIVE,
    ARG_BYTES, ARG_SOURCE, ARG_TARGET, ARG_COUNT, ARG_DTYPE, KEYS
};

typedef struct {
    const char *text;
    int64_t size;
} Key;

#define KEY(text) {text, sizeof text - 1}
static const Key EVENT_KEYS[] = {
    KEY("ts"), KEY("dur"), KEY("ph"), KEY("name"), KEY("cat"), KEY("pid"), KEY("tid"), KEY("id"), KEY("args"),
};
static const Key ARG_KEYS[] = {
    KEY("connection_id"), KEY("Task Type"), KEY("Call stack"), KEY("correlation"), KEY("External id"), KEY("stream"),
    KEY("device"), KEY("operation"), KEY("size(B)"), KEY("name"), KEY("labels"), KEY("sort_index"), KEY("MHz"),
    KEY("Collective name"),
    KEY("size(Byte)"), KEY("src rank"), KEY("dst rank"), KEY("count"), KEY("data_type"),
};

/* The members of an event that are wanted; ``seen``: a bit per one that there is. */
typedef struct {
    const char *text, *end; /* all that it stands in */
    uint32_t seen;
    int nested; /* where something is a list or an object that should be none */
    Token of[KEYS];
} Event;

static const Token ABSENT = {0, 0, NONE, 0};

static const Token *member(const Event *e, int slot) { return e->seen >> slot & 1 ? &e->of[slot] : &ABSENT; }

INLINE int key_in(const Key *keys, int count, const Token *key) {
    const char *text = key->at;
    int64_t size = key->size;
    for (int i = 0; i < count; i++)
        if (keys[i].size == size && keys[i].text[0] == text[0] && keys[i].text[size - 1] == text[size - 1]
            && !memcmp(keys[i].text, text, (size_t)size))
            return i;
    return -1;
}

/* The place of a wanted key, -1: of an unwanted one. */
static int slot_of(const Token *key, int from) {
    if (from == STEP_EVENT) return key_in(EVENT_KEYS, KEYS_OF_EVENT, key);
    int slot = key_in(ARG_KEYS, KEYS - KEYS_OF_EVENT, key);
    return slot < 0 ? -1 : KEYS_OF_EVENT + slot;
}

/* The step that stands here, of those that may follow this one; NULL: none of them. */
INLINE const Step *known_step(const Step *from, const Text *t) {
    Half first, last;
    if (t->end - t->at < STEP_BYTES) return NULL;
    memcpy(&first, t->at, sizeof first);
    memcpy(&last, t->at + sizeof first, sizeof last);
    for (const Step *step = from->next; step; step = step->other) {
        Half differs = ((first ^ step->text[0]) & step->mask[0]) | ((last ^ step->text[1]) & step->mask[1]);
        if (!(differs[0] | differs[1])) return step;
    }
    return NULL;
}

/* Learn what was read as a step behind this one; where there are enough, it is unknown what stands behind it. */
static const Step *learn_step(Reader *r, const Step *from, const char *text, int64_t size, int slot) {
    static const Half all = {UINT64_MAX, UINT64_MAX};
    const Half mask[2] = {all, all};
    Step *before = &r->steps[from - r->steps], *step = &r->steps[FIRST_STEP + r->known];
    int count = 0;
    if (before == &r->steps[STEP_UNKNOWN] || size > STEP_BYTES) return &r->steps[STEP_UNKNOWN];
    for (const Step *next = from->next; next; next = next->other) count++;
    if (count == MOST_NEXT || step == r->steps + MOST_STEPS) {
        r->crowded = 1;
        return &r->steps[STEP_UNKNOWN];
    }
    r->known++;
    memcpy(step->text, text, (size_t)size);
    memcpy(step->mask, mask, (size_t)size);
    step->size = (int32_t)size;
    step->slot = slot;
    step->other = before->next;
    before->next = step;
    return step;
}

/* Begin anew where there were too many: those that fill the tree may be of shapes that do not come again. */
static void forget_steps(Reader *r) {
    if (!r->crowded) return;
    memset(r->steps, 0, sizeof r->steps);
    r->known = r->crowded = 0;
}

static int read_members(Reader *r, Text *t, Event *e, int root);

INLINE int read_member(Reader *r, Text *t, Event *e, int slot) {
    Token unwanted;
    if (slot < 0) return read_value(t, &unwanted);
    if (e->seen >> slot & 1) return refuse(t); /* the last one would count */
    e->seen |= 1u << slot;
    e->of[slot].kind = NONE; /* until it is known, which a text that ends here never makes it */
    if (!is_opening(*t->at)) return read_scalar(t, &e->of[slot]);
    e->of[slot].kind = CONTAINER;
    if (slot != KEY_ARGS) {
        e->nested = 1;
        return skip_container(t);
    }
    if (*t->at == '[') return refuse(t);
    t->at++;
    return read_members(r, t, e, STEP_ARGS);
}

/* Read the members of an object whose brace was read, the wanted ones into the event; ``root``: whose they are. */
static int read_members(Reader *r, Text *t, Event *e, int root) {
    const Step *begin = &r->steps[root], *before = begin, *step;
    Token key;
    for (;; before = step) {
        int slot;
        step = known_step(before, t);
        if (step) {
            t->at += step->size;
            slot = step->slot;
            if (!skip_blanks(t)) return 0;
        } else {
            const char *from = t->at;
            int more = before == begin ? first_member(t, '}') : next_member(t, '}');
            if (more != 1) return more;
            if (!read_key(t, &key)) return 0;
            slot = slot_of(&key, root);
            step = learn_step(r, before, from, t->at - from, slot);
        }
        if (!read_member(r, t, e, slot)) return 0;
    }
}

static int is_absent(const Token *t) { return t->kind == NONE || t->kind == WORD_NULL; }

static int is_text(const Token *t, const char *text) {
    return t->kind == TEXT && t->size == (int64_t)strlen(text) && !memcmp(t->at, text, (size_t)t->size);
}

/* The number that up to eight digits are, of which text there is up to ``end``; 0: something is none. */
INLINE int some_digits(const char *p, int64_t n, const char *end, uint64_t *number) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t zeros = 0x3030303030303030ULL;
    if (end - p >= 8) { /* all eight are one, of which the first come to stand for zeros */
        uint64_t v = n == 8 ? eight(p) : eight(p) << (64 - 8 * n) | zeros >> 8 * n;
        uint64_t others = (v ^ zeros) | ((v ^ zeros) + 0x0606060606060606ULL);
        if (others & 0xF0F0F0F0F0F0F0F0ULL) return 0;
        v = ((v ^ zeros) * (10 << 8 | 1)) >> 8 & 0x00FF00FF00FF00FFULL;
        v = (v * (100ULL << 16 | 1)) >> 16 & 0x0000FFFF0000FFFFULL;
        *number = (v * (10000ULL << 32 | 1)) >> 32;
        return 1;
    }
#endif
    (void)end;
    *number = 0;
    for (int64_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return 0;
        *number = 10 * *number + (uint64_t)(p[i] - '0');
    }
    return 1;
}

/* The number that 1 to 19 digits are; 0: something is none. */
INLINE int all_digits(const char *p, int64_t n, const char *end, uint64_t *number) {
    uint64_t more;
    int64_t some = n % 8 ? n % 8 : 8;
    if (!some_digits(p, some, end, number)) return 0;
    for (p += some, n -= some; n; p += 8, n -= 8) {
        if (!some_digits(p, 8, end, &more)) return 0;
        *number = 100000000 * *number + more;
    }
    return 1;
}

/* An integer, perhaps in quotes; -1 where there is none. */
INLINE int as_integer(const Token *t, const char *end, int64_t *value) {
    uint64_t sum;
    *value = -1;
    if (is_absent(t)) return 1;
    if (t->kind != NUMBER && t->kind != TEXT) return 0;
    int negative = t->size && t->at[0] == '-';
    const char *p = t->at + negative;
    int64_t n = t->size - negative;
    if (n < 1 || n > 19 || (n > 1 && *p == '0') || !all_digits(p, n, end, &sum)) return 0;
    if (sum > (uint64_t)INT64_MAX) return 0;
    *value = negative ? -(int64_t)sum : (int64_t)sum;
    return 1;
}

/* Microseconds with three places, which most times have, to ns: there is nothing to round. 0: they are others. */
INLINE int as_thousandths(const Token *t, const char *end, int64_t *value) {
    uint64_t whole, rest;
    int64_t n = t->size - 4;
    if (n < 1 || n > MOST_WHOLE || t->at[n] != '.') return 0;
    if (!all_digits(t->at, n, end, &whole) || !some_digits(t->at + n + 1, 3, end, &rest)) return 0;
    if (whole > LATEST_NS / 1000) return 0;
    *value = (int64_t)(1000 * whole + rest);
    return 1;
}

/* Microseconds to ns: six places are kept, what is between two ns goes to the nearer, then to the even one. */
static int as_any_time(const Token *t, int64_t *value) {
    static const int64_t tens[] = {1000000, 100000, 10000, 1000, 100, 10, 1};
    int64_t whole = 0, rest = 0, i = 0, places = 0;
    *value = -1;
    if (is_absent(t)) return 1;
    for (; i < t->size && t->at[i] >= '0' && t->at[i] <= '9'; i++) {
        if (i == MOST_WHOLE) return 0;
        whole = 10 * whole + (t->at[i] - '0');
    }
    if (!i || whole > LATEST_NS / 1000) return 0;
    if (i < t->size) {
        if (t->at[i++] != '.' || i == t->size) return 0;
        for (; i < t->size; i++) {
            if (t->at[i] < '0' || t->at[i] > '9') return 0;
            if (places < 6) {
                rest = 10 * rest + (t->at[i] - '0');
                places++;
            }
        }
    }
    rest *= tens[places];
    int64_t ns = whole * 1000 + rest / 1000, beyond = rest % 1000;
    if (beyond > 500 || (beyond == 500 && (ns & 1))) ns++;
    *value = ns;
    return ns < LATEST_NS;
}

/* Microseconds to ns; -1 where there are none. */
INLINE int as_time(const Token *t, const char *end, int64_t *value) {
    if (!is_absent(t) && as_thousandths(t, end, value)) return *value < LATEST_NS;
    return as_any_time(t, value);
}

/* Of so many digits that the nearest double is not the number, but not of half a ns, which depends on that double. */
static int as_noisy_length(uint64_t sum, int64_t places, int64_t *value) {
    uint64_t per_ns = 1;
    for (int64_t i = 3; i < places; i++) per_ns *= 10;
    double whole = (double)(sum / per_ns), part = (double)(sum % per_ns) / (double)per_ns;
    if (places < 3 || fabs(part - 0.5) <= (whole + 1) * 0x1p-50) return 0;
    *value = (int64_t)(sum / per_ns) + (part > 0.5);
    return 1;
}

/* Microseconds to ns as if by way of the nearest double, as a JSON number is read: exact up to 15 digits. */
INLINE int as_length(const Token *t, const char *end, int64_t *value) {
    static const double tens[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    uint64_t sum = 0;
    int64_t places = 0, figures = 0;
    int point = 0;
    *value = -1;
    if (is_absent(t)) return 1;
    if (t->kind != NUMBER) return 0;
    if (t->size <= 15 && as_thousandths(t, end, value)) return 1;
    for (int64_t i = 0; i < t->size; i++) {
        if (t->at[i] == '.') {
            point = 1;
            continue;
        }
        if (t->at[i] < '0' || t->at[i] > '9' || figures == 19 || places == 21) return 0;
        sum = 10 * sum + (uint64_t)(t->at[i] - '0');
        figures += sum > 0;
        places += point;
    }
    if (figures > 15 || places > 15) return as_noisy_length(sum, places, value);
    *value = (int64_t)rint((double)sum / tens[places] * 1000.0);
    return 1;
}

/* ---- what is found ---- */

typedef struct {
    int64_t most;        /* how long the arrays' rows are */
    int64_t *numbers;    /* NUMBERS rows */
    int32_t *words;      /* COLUMN_WORDS rows of raw codes */
    int64_t *flows;      /* FLOWS rows */
    int64_t *others;     /* 2 rows: begin and end in the text of metadata, of values of the wanted counter, of collectives */
    int64_t slices, arrows, named, events;
    int64_t cut;         /* where the first event stands that was not taken */
    int64_t wide;        /* arrows whose id has more than 64 bits */
    int64_t kinds;       /* a bit per category that arrows have */
    int64_t told[NUMBERS + COLUMN_WORDS]; /* how many slices have a value, per column */
    int64_t far[NUMBERS + FLOWS];         /* whether some value needs more than 32 bits, per column of numbers */
} Found;

/* Whether what is read has the types that the other decoder asks for, whatever the event is. */
static int is_typed(const Event *e, int any_times) {
    const Token *ts = member(e, KEY_TS), *dur = member(e, KEY_DUR), *ph = member(e, KEY_PH);
    const Token *name = member(e, KEY_NAME), *cat = member(e, KEY_CAT), *args = member(e, KEY_ARGS);
    if (!any_times && !(ts->kind == TEXT || is_absent(ts))) return 0;
    if (!any_times && !(dur->kind == NUMBER || is_absent(dur))) return 0;
    if (ph->kind != NONE && (ph->kind != TEXT || ph->escaped)) return 0;
    if (name->kind != NONE && name->kind != TEXT) return 0;
    if (!is_absent(cat) && (cat->kind != TEXT || cat->escaped)) return 0;
    return !e->nested && (is_absent(args) || args->kind == CONTAINER);
}

/* Before the first value of a column nothing was written: most columns have none at all. */
INLINE int32_t *cell_of_word(Found *f, int column) {
    int32_t *row = f->words + column * f->most;
    if (!f->told[NUMBERS + column]++)
        for (int64_t i = 0; i < f->slices; i++) row[i] = -1;
    return row + f->slices;
}

static int64_t *cell_of_number(Found *f, int column) {
    int64_t *row = f->numbers + column * f->most;
    if (!f->told[column]++)
        for (int64_t i = 0; i < f->slices; i++) row[i] = -1;
    return row + f->slices;
}

static int add_word(Reader *r, Found *f, int column, const Token *t) {
    if (t->kind == TEXT) {
        int32_t code = code_of(&r->words[column], t->at, t->size);
        if (code == -2) return PLAIN_NO_MEMORY;
        *cell_of_word(f, column) = code;
    } else if (!is_absent(t)) {
        return PLAIN_ODD;
    } else if (f->told[NUMBERS + column]) {
        f->words[column * f->most + f->slices] = -1;
    }
    return PLAIN_OK;
}

/* Forget what only copies have, where this is none; 0: who knows. */
static int forget_of_others(Event *e) {
    const uint32_t of_copies = 1u << ARG_OPERATION | 1u << ARG_MOVED;
    const Token *name = member(e, KEY_NAME);
    if (!(e->seen & of_copies)) return 1;
    if (name->escaped) return 0;
    for (int64_t i = 0; i + 6 <= name->size; i++)
        if (!memcmp(name->at + i, "MEMCPY", 6)) return 1;
    e->seen &= ~of_copies;
    return 1;
}

/* Add what parts of collectives have: the bytes, and the rank at the other end, if it is another one. */
static int add_part(Found *f, const Event *e) {
    int64_t bytes, source, target;
    if (!as_integer(member(e, ARG_BYTES), e->end, &bytes)) return PLAIN_ODD;
    if (!as_integer(member(e, ARG_SOURCE), e->end, &source)) return PLAIN_ODD;
    if (!as_integer(member(e, ARG_TARGET), e->end, &target)) return PLAIN_ODD;
    if (!is_absent(member(e, ARG_BYTES)) && is_absent(member(e, ARG_MOVED))) {
        *cell_of_number(f, MOVED) = bytes;
        f->far[MOVED] |= bytes != (int32_t)bytes;
    }
    if (source >= 0 && target >= 0 && target < NO_RANK && source != target) {
        *cell_of_number(f, PARTNER) = target;
        f->far[PARTNER] |= target != (int32_t)target;
    }
    return PLAIN_OK;
}

static int add_slice(Reader *r, Found *f, Event *e, int any_times) {
    static const int words[COLUMN_WORDS] = {KEY_NAME, KEY_CAT, ARG_TASK_TYPE, ARG_STACK, ARG_OPERATION, ARG_DTYPE};
    static const int numbers[NUMBERS] = {
        KEY_TS, KEY_DUR, KEY_PID, KEY_TID, ARG_CONNECTION, ARG_MOVED, KEYS, ARG_COUNT,
        ARG_CORRELATION, ARG_EXTERNAL, ARG_STREAM, ARG_DEVICE,
    };
    const uint32_t of_parts = 1u << ARG_BYTES | 1u << ARG_SOURCE | 1u << ARG_TARGET;
    if (!forget_of_others(e)) return PLAIN_ODD;
    /* Only Kineto, which has other times, has the last ones; it has no parts of collectives. */
    if (any_times) e->seen &= ~(of_parts | 1u << ARG_COUNT | 1u << ARG_DTYPE);
    for (int i = START; i < (any_times ? NUMBERS : CORRELATION); i++) {
        const Token *t = i == PARTNER ? &ABSENT : member(e, numbers[i]);
        int64_t value;
        if (is_absent(t)) {
            if (f->told[i]) f->numbers[i * f->most + f->slices] = -1;
            continue;
        }
        int read = i == START || (i == LENGTH && any_times) ? as_time(t, e->end, &value)
            : i == LENGTH                                   ? as_length(t, e->end, &value)
                                                            : as_integer(t, e->end, &value);
        if (!read) return PLAIN_ODD;
        *cell_of_number(f, i) = value;
        f->far[i] |= value != (int32_t)value;
    }
    if (e->seen & of_parts) {
        int status = add_part(f, e);
        if (status) return status;
    }
    for (int i = 0; i < COLUMN_WORDS; i++) {
        int status = add_word(r, f, i, member(e, words[i]));
        if (status) return status;
    }
    f->slices++;
    return PLAIN_OK;
}

/* An integer of any size, spelled as everybody does. */
static int is_number_of_arrow(const Token *t, const char *end) {
    uint64_t any;
    if (t->kind != NUMBER && t->kind != TEXT) return 0;
    int64_t i = t->size && t->at[0] == '-';
    if (t->size == i || t->size > LONGEST_ID || (t->at[i] == '0' && t->size > 1)) return 0;
    for (; i < t->size; i += 8)
        if (!some_digits(t->at + i, t->size - i < 8 ? t->size - i : 8, end, &any)) return 0;
    return 1;
}

static int add_arrow(Reader *r, Found *f, const Event *e) {
    static const int numbers[] = {KEY_ID, KEY_PID, KEY_TID};
    const Token *cat = member(e, KEY_CAT);
    int64_t arrow = 0, at = f->arrows;
    if (cat->kind != TEXT) return PLAIN_OK;
    while (arrow < r->arrows && !is_word(&r->words[WORD_ARROW], arrow, cat->at, cat->size)) arrow++;
    if (arrow == r->arrows) return PLAIN_OK;
    const Token *id = member(e, KEY_ID);
    if (!is_number_of_arrow(id, e->end)) return PLAIN_ODD;
    f->wide += !as_integer(id, e->end, &f->flows[FLOW_ID * f->most + at]);
    f->flows[FLOW_BEGIN * f->most + at] = id->at - e->text;
    f->flows[FLOW_END * f->most + at] = id->at + id->size - e->text;
    for (int i = FLOW_PID; i <= FLOW_TID; i++)
        if (!as_integer(member(e, numbers[i]), e->end, &f->flows[i * f->most + at])) return PLAIN_ODD;
    for (int i = FLOW_ID; i <= FLOW_TID; i++) {
        int64_t value = f->flows[i * f->most + at];
        f->far[NUMBERS + i] |= value != (int32_t)value;
    }
    if (!as_time(member(e, KEY_TS), e->end, &f->flows[FLOW_TIME * f->most + at])) return PLAIN_ODD;
    f->flows[FLOW_START * f->most + at] = e->of[KEY_PH].at[0] == 's';
    f->flows[FLOW_ARROW * f->most + at] = arrow;
    f->kinds |= (int64_t)1 << arrow;
    f->arrows++;
    return PLAIN_OK;
}

/* Leave an event's text to the other decoder. */
static int add_other(Found *f, const Event *e, const char *begin, const char *end) {
    if (f->named == f->most) return PLAIN_ODD;
    f->others[f->named] = begin - e->text;
    f->others[f->most + f->named++] = end - e->text;
    return PLAIN_OK;
}

static int add_event(Reader *r, Found *f, Event *e, const char *begin, const char *end, int any_times) {
    const Token *ph = member(e, KEY_PH), *name = member(e, KEY_NAME);
    f->events++;
    if (is_text(ph, "X")) {
        int status = f->slices < f->most ? add_slice(r, f, e, any_times) : PLAIN_ODD;
        if (status || !any_times || !(e->seen >> ARG_COLLECTIVE & 1)) return status; /* Kineto tells their groups */
        return add_other(f, e, begin, end);
    }
    if (is_text(ph, "s") || is_text(ph, "f")) return f->arrows < f->most ? add_arrow(r, f, e) : PLAIN_ODD;
    if (!is_text(ph, "M") && !(is_text(ph, "C") && (name->escaped || is_text(name, "AI Core Freq")))) return PLAIN_OK;
    return add_other(f, e, begin, end);
}

EXPORT void plain_free(Reader *r) {
    if (!r) return;
    for (int i = 0; i < WORDS; i++) {
        free(r->words[i].hashes);
        free(r->words[i].codes);
        free(r->words[i].bytes);
        free(r->words[i].ends);
    }
    free(r);
}

/* A reader that takes the arrows of these categories, which stand one behind the other; NULL without memory.
 *
 * The seed is to be random: whoever knows it can make up words that all look for the same place.
 */
EXPORT Reader *plain_reader(const char *arrows, const int64_t *sizes, int64_t count, uint64_t seed) {
    Reader *r = calloc(1, sizeof *r);
    for (int i = 0; r && i < WORDS; i++) r->words[i].seed = seed;
    for (int64_t i = 0; r && i < count; arrows += sizes[i++]) {
        if (code_of(&r->words[WORD_ARROW], arrows, sizes[i]) != i) {
            plain_free(r);
            return NULL;
        }
        r->arrows++;
    }
    return r;
}

/* The hash of the source that this was made of. */
EXPORT const char *plain_source(void) { return SOURCE_HASH; }

/* What the arrays and Found look like: of another one nothing may be written. */
EXPORT int64_t plain_layout(void) {
    return (int64_t)(((sizeof(Found) * 100 + NUMBERS) * 100 + COLUMN_WORDS) * 100 + FLOWS);
}

/* How many words a column has. */
EXPORT int64_t plain_count(const Reader *r, int32_t column) { return r->words[column].count; }

/* The words of a column from ``first`` on, one behind the other; ``ends`` gets where each ends from there. */
EXPORT const char *plain_words(const Reader *r, int32_t column, int64_t first, int64_t *ends) {
    const Words *w = &r->words[column];
    int64_t begin = word_begin(w, first);
    for (int64_t i = first; i < w->count; i++) ends[i - first] = w->ends[i] - begin;
    return w->bytes + begin;
}

/* Take the events that are followed by another one; PLAIN_CLOSED: the list ends, and the last one was not taken. */
EXPORT int32_t plain_read(Reader *r, const char *text, int64_t size, int32_t any_times, Found *f) {
    Text t = {text, text + size, 0};
    f->slices = f->arrows = f->named = f->events = f->cut = f->wide = f->kinds = 0;
    memset(f->told, 0, sizeof f->told);
    memset(f->far, 0, sizeof f->far);
    forget_steps(r);
    if (!skip_blanks(&t) || *t.at != '{') return PLAIN_ODD;
    Event e;
    e.text = text;
    e.end = t.end;
    for (;;) {
        const char *begin = t.at;
        e.seen = e.nested = 0;
        f->cut = begin - text;
        t.at++;
        int whole = read_members(r, &t, &e, STEP_EVENT);
        if (t.odd || !is_typed(&e, any_times)) return PLAIN_ODD; /* cut or not: the other one looks, too */
        if (!whole) return PLAIN_OK;
        const char *end = t.at;
        if (!skip_blanks(&t)) return PLAIN_OK;
        if (*t.at == ']') return PLAIN_CLOSED;
        if (*t.at != ',') return PLAIN_ODD;
        t.at++;
        if (!skip_blanks(&t)) return PLAIN_OK;
        if (*t.at != '{') return PLAIN_ODD;
        int status = add_event(r, f, &e, begin, end, any_times);
        if (status) return status;
    }
}
