/* Finds the subcommand's row and calls it. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#ifdef EP_HAVE_RUN
#define RUN_COMMAND(function) function
#else
#define RUN_COMMAND(function) NULL
#endif

static const epi_command commands[] = {
#define EP_COMMAND(name, function, sentence) {#name, sentence, function},
#define EP_COMMAND_RUN(name, function, sentence) {#name, sentence, RUN_COMMAND(function)},
#include "commands.def"
#undef EP_COMMAND
#undef EP_COMMAND_RUN
    {NULL, NULL, NULL}};

static int usage(FILE *to, int code) {
    fprintf(to, "epi %s: runs transformer blocks three ways; explains, compares, checks traces\n\n", ep_version());
    fprintf(to, "usage: epi COMMAND [OPTIONS]     epi COMMAND --help\n\n");
    for (const epi_command *c = commands; c->name; c++) fprintf(to, "  %-8s %s\n", c->name, c->sentence);
    fprintf(
        to,
        "\nExit codes: 0 done; 1 a claim is broken or a difference was found that was\nasked to fail; 2 bad usage, bad "
        "input, or output that could not be written.\n");
    return code;
}

/* A file that the tool opens must not become its closed standard output. What stands in for it can't be written, so that
 * the loss is told. */
static void hold_streams(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR) < 0) return;
}

static int command(int argc, char **argv) {
    if (argc < 2) return usage(stderr, EPI_BAD);
    bool help = strcmp(argv[1], "help") == 0;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || (help && argc == 2))
        return usage(stdout, EPI_DONE);
    if (strcmp(argv[1], "--version") == 0) {
        printf("epi %s\n", ep_version());
        return EPI_DONE;
    }
    char asks[] = "--help";
    if (help) argv[1] = argv[2], argv[2] = asks, argc = 3; /* epi help COMMAND */
    for (const epi_command *c = commands; c->name; c++) {
        if (strcmp(argv[1], c->name) != 0) continue;
        if (!c->run) return epi_bad("'%s' needs the runtime, and this epi was built without it", c->name);
        return c->run(argc - 1, argv + 1);
    }
    return epi_bad("there is no command '%s'; epi --help lists them", argv[1]);
}

int main(int argc, char **argv) {
    hold_streams();
    int code = command(argc, argv);
    bool lost = fflush(stdout) != 0;
    if ((lost || ferror(stdout)) && code != EPI_BAD) return epi_bad("the output could not be written");
    return code;
}
