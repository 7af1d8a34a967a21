/* What every subcommand shares: option parsing, output, exit codes. */
#ifndef EPI_CLI_H
#define EPI_CLI_H

#include <epilogue/epilogue.h>
#include <stdbool.h>
#include <stdio.h>

enum { EPI_DONE = 0, EPI_FOUND = 1, EPI_BAD = 2 };

/* An option of a command; rows end with a NULL name. A flag has kind OPT_FLAG and a bool*. */
typedef enum { OPT_FLAG, OPT_TEXT, OPT_INT, OPT_FLOAT } epi_option_kind;
typedef struct epi_option {
    const char *name; /* "--batch" */
    epi_option_kind kind;
    void *value;          /* bool*, const char**, int64_t*, double* */
    const char *argument; /* for the help: "N", "F" */
    const char *help;
} epi_option;

typedef struct epi_command {
    const char *name, *sentence;
    int (*run)(int argc, char **argv);
} epi_command;

/* Parses argv[1..]; positional arguments are gathered in order into `positional` (at most `max`), their number in
 * *count. Returns -1 to go on, or the exit code (--help prints and gives 0; a bad option prints a sentence and gives 2). */
int epi_parse(int argc, char **argv, const char *usage, const epi_option *options, const char **positional, int max,
              int *count);
/* Prints "epi: <sentence>" with file and position where known, on stderr, and gives EPI_BAD. */
int epi_fail(const char *what, const ep_error *err);
/* Is the file that is to be written one of the `count` that are read? Then says so and gives EPI_BAD, else -1. */
int epi_keep(const char *option, const char *output, const char *const *inputs, int count);
/* Asked before long work: can a file be written at `path` (or in it, if it is to be a folder)? -1, or says why not. */
int epi_writable(const char *option, const char *path, bool folder);
int epi_bad(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What --device names: "cpu", "cuda", "cuda:1". -1, or says what it may be and gives EPI_BAD. */
int epi_device(const char *text, ep_device *out);
/* "" or, where EPILOGUE_ISA asks for what is not in force (no such name, or more than the processor has), a sentence. */
const char *epi_isa_note(void);
/* The terminal's width (80 when piped), and whether colour is wanted (never when piped or with NO_COLOR). */
int epi_width(void);
bool epi_color(void);
/* Prints words at most `width` columns wide and a line's end; the text begins at `column`, later lines at `indent`. */
void epi_wrap(const char *text, int column, int indent, int width);

#define EP_COMMAND(name, function, sentence) int function(int argc, char **argv);
#define EP_COMMAND_RUN(name, function, sentence) int function(int argc, char **argv);
#include "commands.def"
#undef EP_COMMAND
#undef EP_COMMAND_RUN

#endif
