/* What is said, and data that can be recognised. */
#include "probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int is(const char *name) { return !strcmp(scene, name); }
int is_client(void) { return side[0] == 'c'; }

void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s: ", side);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    fflush(stdout);
}

void must(int good, const char *what)
{
    if (good)
        return;
    say("%s failed: %s", what, strerror(errno));
    exit(1);
}

int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

void pattern(uint8_t *at, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        at[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

int has_pattern(const uint8_t *at, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        if (at[i] != (uint8_t)(seed + i * 7 + (i >> 8)))
            return 0;
    return 1;
}
