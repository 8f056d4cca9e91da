/* Reads files as lines of a table, each from memory of exactly its size, so that a sanitizer sees any step beyond. */

#include <stdio.h>

#include "plain_cells.c"

enum { COLUMNS = 7 };

/* As the tests' tables have them: Name, Start Time(us), Duration(us), Block Dim, aic_mac_ratio, Model ID, Input Shapes. */
static const int32_t kinds[COLUMNS] = {TEXT, TIME, TIME, INTEGER, DECIMAL, SKIPPED, TEXT};
static const size_t sizes[COLUMNS] = {4, 8, 8, 8, 4, 1, 4};

/* Read lines into columns of exactly the room that they are promised; return the number of rows, or below 0. */
static int64_t read_lines(const char *text, int64_t size) {
    Cells *c = cells_begin(COLUMNS, kinds, ',', 1);
    void *out[COLUMNS];
    if (!c) exit(2);
    for (int i = 0; i < COLUMNS; i++)
        if (!(out[i] = malloc(((size_t)size / COLUMNS + 1) * sizes[i]))) exit(2);
    int64_t rows = cells_read(c, text, size, 0, out);
    for (int i = 0; i < COLUMNS; i++) {
        for (int64_t at = 0; kinds[i] == TEXT && at < rows; at++) {
            int32_t code = ((int32_t *)out[i])[at];
            if (code < 0 || code >= cells_count(c, i)) exit(3);
        }
        free(out[i]);
    }
    cells_end(c);
    return rows;
}

int main(int count, char **arguments) {
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    long long size, texts = 0, rows = 0;
    if (!file) return 2;
    for (; fscanf(file, "%lld", &size) == 1; texts++) {
        char *text = malloc((size_t)size);
        if (!text || fgetc(file) != '\n' || fread(text, 1, (size_t)size, file) != (size_t)size) return 2;
        int64_t found = read_lines(text, size);
        rows += found > 0 ? found : 0;
        free(text);
    }
    fclose(file);
    printf("%lld texts, %lld rows\n", texts, rows);
    return 0;
}
