/* Reads files as pieces of a trace, each from memory of exactly its size, so that a sanitizer sees any step beyond. */

#include <stdio.h>

#include "plain_events.c"

enum { MOST_SHARE = 32, SMALLEST = 3 };

/* The numbers of a reader that was given so much room, and its words, added up: all of what was written is read. */
static uint64_t read_piece(const char *text, int64_t size, int any_times, int64_t most) {
    static const char arrows[] = "HostToDeviceasync_npu";
    static const int64_t sizes[] = {12, 9};
    Reader *r = plain_reader(arrows, sizes, 2, 1);
    Found f = {.most = most};
    uint64_t sum = 0;
    f.numbers = malloc(NUMBERS * (size_t)most * sizeof *f.numbers);
    f.words = malloc(COLUMN_WORDS * (size_t)most * sizeof *f.words);
    f.flows = malloc(FLOWS * (size_t)most * sizeof *f.flows);
    f.others = malloc(2 * (size_t)most * sizeof *f.others);
    if (!r || !f.numbers || !f.words || !f.flows || !f.others) exit(2);
    for (int again = 0; again < 2; again++) { /* the second time all words are known */
        int status = plain_read(r, text, size, any_times, &f);
        if (status < PLAIN_NO_MEMORY || status > PLAIN_CLOSED || f.cut < 0 || f.cut > size) exit(3);
        if (f.slices > most || f.arrows > most || f.named > most) exit(4);
        if (status < 0) continue;
        for (int i = 0; i < NUMBERS; i++) /* a column that nothing is told of is not written */
            for (int64_t at = 0; f.told[i] && at < f.slices; at++) sum += (uint64_t)f.numbers[i * most + at];
        for (int i = 0; i < COLUMN_WORDS; i++)
            for (int64_t at = 0; f.told[NUMBERS + i] && at < f.slices; at++) {
                int32_t code = f.words[i * most + at];
                if (code < -1 || code >= plain_count(r, i)) exit(5);
            }
        for (int i = 0; i < FLOWS; i++)
            for (int64_t at = 0; at < f.arrows; at++) sum += (uint64_t)f.flows[i * most + at];
        for (int64_t at = 0; at < f.named; at++)
            if (f.others[at] < 0 || f.others[at] >= f.others[most + at] || f.others[most + at] > f.cut) exit(6);
    }
    for (int i = 0; i < COLUMN_WORDS; i++) {
        int64_t count = plain_count(r, i), *ends = malloc((size_t)count * sizeof *ends + 1);
        if (!ends) exit(2);
        const char *words = plain_words(r, i, 0, ends);
        for (int64_t at = 0; count && at < ends[count - 1]; at++) sum += (unsigned char)words[at];
        free(ends);
    }
    free(f.numbers);
    free(f.words);
    free(f.flows);
    free(f.others);
    plain_free(r);
    return sum;
}

/* Each file holds texts, a line with its size before each. */
int main(int count, char **paths) {
    uint64_t sum = 0;
    int64_t read = 0;
    for (int i = 1; i < count; i++) {
        FILE *file = fopen(paths[i], "rb");
        long size;
        if (!file) return 2;
        while (fscanf(file, "%ld", &size) == 1) {
            char *text = malloc((size_t)size);
            if (fgetc(file) != '\n' || (!text && size) || fread(text, 1, (size_t)size, file) != (size_t)size) return 2;
            for (int any_times = 0; any_times < 2; any_times++) {
                sum += read_piece(text, size, any_times, size / MOST_SHARE + 1);
                sum += read_piece(text, size, any_times, SMALLEST);
            }
            free(text);
            read++;
        }
        fclose(file);
    }
    printf("%lld texts, %llu\n", (long long)read, (unsigned long long)sum);
    return 0;
}
