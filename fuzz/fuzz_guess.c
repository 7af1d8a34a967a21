/* Any bytes as a guess: parsed or refused with a position; what parses prints text that parses to the same text. */
#include <epilogue/guess.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ep_guess *first = NULL, *again = NULL;
    ep_error err = {0};
    if (ep_guess_parse((const char *)data, size, &err, &first) != EP_OK) {
        if (err.line < 1 || err.column < 1 || !err.message[0]) abort();
        return 0;
    }
    const char *text = ep_guess_text(first);
    if (ep_guess_parse(text, strlen(text), &err, &again) != EP_OK) abort();
    if (ep_guess_count(first) != ep_guess_count(again) || strcmp(text, ep_guess_text(again)) != 0) abort();
    ep_guess_destroy(first);
    ep_guess_destroy(again);
    return 0;
}
