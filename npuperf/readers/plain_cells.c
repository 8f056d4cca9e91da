/* Rows of an SQLite statement to columns of numbers, without an object for each cell.
 *
 * SQLite is not linked with: whoever calls brings its functions, of the library that Python has loaded. What is neither
 * an integer of 64 bits nor, in the last column where that is one of numbers, a number or NULL is refused, as is what
 * SQLite cannot read; then sqlite.py reads the table row by row. Digits alone are an integer: exporters write them, too.
 */

#include <math.h>
#include <stdint.h>

#define SQLITE_ROW 100
#define SQLITE_DONE 101
#define MOST_DIGITS 18 /* of 19 not all fit */
#define EXPORT __attribute__((visibility("default")))

enum { REFUSED = -1 };
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

static int digits(const SQLite *sqlite, void *statement, int column, int64_t *value) {
    const unsigned char *text = sqlite->text(statement, column);
    int size = sqlite->bytes(statement, column);
    if (!text || size < 1 || size > MOST_DIGITS)
        return 0;
    *value = 0;
    for (int i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        *value = *value * 10 + (text[i] - '0');
    }
    return 1;
}

/* Read up to `room` rows; return how many, fewer where there are no more. `numbers`: for one column more, or NULL. */
EXPORT int64_t cells_read(const SQLite *sqlite, void *statement, int64_t *const *integers, int columns,
                          double *numbers, int64_t room) {
    for (int64_t row = 0; row < room; row++) {
        int stepped = sqlite->step(statement);
        if (stepped == SQLITE_DONE)
            return row;
        if (stepped != SQLITE_ROW)
            return REFUSED;
        for (int i = 0; i < columns; i++) {
            int type = sqlite->type(statement, i);
            if (type == SQLITE_INTEGER)
                integers[i][row] = sqlite->int64(statement, i);
            else if (type != SQLITE_TEXT || !digits(sqlite, statement, i, &integers[i][row]))
                return REFUSED;
        }
        if (numbers) {
            int type = sqlite->type(statement, columns);
            if (type != SQLITE_INTEGER && type != SQLITE_FLOAT && type != SQLITE_NULL)
                return REFUSED;
            numbers[row] = type == SQLITE_NULL ? NAN : sqlite->real(statement, columns);
        }
    }
    return room;
}
