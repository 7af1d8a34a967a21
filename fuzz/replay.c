/* Runs a fuzz target without a fuzzer: every file of the corpus folder, then mutations of each from a fixed seed. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t mutate(uint8_t *data, size_t size) {
    int changes = 1 + (int)(next() % 4);
    for (int i = 0; i < changes && size; i++) {
        size_t at = next() % size;
        switch (next() % 5) {
        case 0: data[at] ^= (uint8_t)(1u << next() % 8); break;
        case 1: data[at] = (uint8_t)next(); break;
        case 2: size = at; break;
        case 3: {
            size_t from = next() % size, n = next() % 16;
            if (n > size - from) n = size - from;
            if (n > size - at) n = size - at;
            memmove(data + at, data + from, n);
            break;
        }
        default: {
            static const char *const tokens[] = {"\"", "{",  "}",     "[",   "]",    ",",
                                                 "\\", "-1", "1e999", "NaN", "\xff", "\n"};
            const char *t = tokens[next() % (sizeof tokens / sizeof *tokens)];
            size_t n = strlen(t);
            if (n <= size - at) memcpy(data + at, t, n);
        }
        }
    }
    return size;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int rounds = argc > 2 ? atoi(argv[2]) : 200;
    DIR *dir = opendir(argv[1]);
    if (!dir) {
        fprintf(stderr, "no corpus folder %s\n", argv[1]);
        return 2;
    }
    size_t files = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        FILE *f = fopen(path, "rb");
        if (!f) continue;
        fseek(f, 0, SEEK_END);
        long size = ftell(f);
        rewind(f);
        uint8_t *data = malloc((size_t)size + 1), *copy = malloc((size_t)size + 1);
        size_t got = fread(data, 1, (size_t)size, f);
        fclose(f);
        LLVMFuzzerTestOneInput(data, got);
        for (int i = 0; i < rounds; i++) {
            memcpy(copy, data, got);
            LLVMFuzzerTestOneInput(copy, mutate(copy, got));
        }
        free(data);
        free(copy);
        files++;
    }
    closedir(dir);
    printf("%zu corpus files, %d mutations each\n", files, rounds);
    return files ? 0 : 1;
}
