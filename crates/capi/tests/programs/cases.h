/* A program is a table of cases. Each is a function that checks one behaviour. It runs in a process of its
 * own, so that a case that fails, hangs or crashes does not affect the others:
 *
 *     PROGRAM         runs all and prints a line for each; ends with 0 if all hold
 *     PROGRAM CASE    runs one in the process itself, for a debugger
 */
#ifndef CASES_H
#define CASES_H

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* How long a case may take. An emulated or busy machine is slow. */
#define CASE_TIMEOUT_SECONDS 60

struct test_case {
	const char *name;
	void (*run)(void);
	/* What runs before and after it; may be NULL. */
	void (*open)(void);
	void (*close)(void);
};

#define CASE(function) { #function, function, NULL, NULL }

/* The result of a case, in memory that all processes of the program share. */
struct report {
	/* The case runs in the process itself, so no parent prints the result. */
	int runs_alone;
	atomic_int complaints;
	atomic_int is_written;
	char complaint[512];
	size_t length;
	char facts[8192];
};

static struct report *report;

/* Ends the case. The first complaint counts: those that follow are about its consequences. */
__attribute__((noreturn, format(printf, 3, 4)))
static inline void complain(const char *file, int line, const char *format, ...)
{
	char words[400];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(words, sizeof(words), format, arguments);
	va_end(arguments);
	if (atomic_fetch_add(&report->complaints, 1) == 0) {
		const char *slash = strrchr(file, '/');
		snprintf(report->complaint, sizeof(report->complaint), "%s:%d: %s",
			 slash ? slash + 1 : file, line, words);
		if (report->runs_alone) {
			fprintf(stderr, "%s\n", report->complaint);
			abort();
		}
		atomic_store(&report->is_written, 1);
	}
	while (!atomic_load(&report->is_written))
		sched_yield();
	_exit(1);
}

/* Prints a fact below the line of the case. It must be the same with every library. */
__attribute__((format(printf, 1, 2)))
static inline void tell(const char *format, ...)
{
	size_t room = sizeof(report->facts) - report->length;
	va_list arguments;
	va_start(arguments, format);
	report->length += vsnprintf(report->facts + report->length, room, format, arguments);
	va_end(arguments);
	if (report->length >= sizeof(report->facts))
		complain(__FILE__, __LINE__, "there is no room for so many facts");
}

#define COMPLAIN(...) complain(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(what)                                                            \
	do {                                                                   \
		if (!(what))                                                   \
			COMPLAIN("%s (errno %d)", #what, errno);               \
	} while (0)

/* Checks that two numbers are equal. The names end with _ so that no argument is taken for one of them. */
#define SAME(is, should)                                                       \
	do {                                                                   \
		long long is_ = (is), should_ = (should);                      \
		if (is_ != should_)                                            \
			COMPLAIN("%s is %lld, not %s", #is, is_, #should);     \
	} while (0)

/* Checks that a verb returns a positive errno. */
#define RETURNS_ERROR(call, error)                                             \
	do {                                                                   \
		int result_ = (call);                                          \
		if (result_ != (error))                                        \
			COMPLAIN("%s gives %d, not %s", #call, result_, #error); \
	} while (0)

/* Checks that a verb returns NULL and sets errno. */
#define RETURNS_NULL(call, error)                                              \
	do {                                                                   \
		errno = 0;                                                     \
		void *result_ = (call);                                        \
		if (result_ != NULL)                                           \
			COMPLAIN("%s succeeds", #call);                        \
		if (errno != (error))                                          \
			COMPLAIN("%s gives errno %d, not %s", #call, errno, #error); \
	} while (0)

/* Checks that a function of librdmacm returns -1 and sets errno. */
#define FAILS(call, error)                                                     \
	do {                                                                   \
		errno = 0;                                                     \
		int result_ = (call);                                          \
		if (result_ != -1)                                             \
			COMPLAIN("%s gives %d", #call, result_);               \
		if (errno != (error))                                          \
			COMPLAIN("%s gives errno %d, not %s", #call, errno, #error); \
	} while (0)

/* Allocates freed memory again and overwrites it, so that a use after free fails. */
static inline void reuse_freed_memory(void)
{
	static void *volatile memory;
	for (size_t i = 0; i < 16384; i++) {
		size_t size = 16 + i % 1024;
		memory = malloc(size);
		CHECK(memory != NULL);
		memset(memory, 0xff, size);
	}
}

/* Runs it in a child, and demands that the child fares well. */
static inline void in_child(void (*run)(void))
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(CASE_TIMEOUT_SECONDS / 2);
		run();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(status == 0);
}

static inline void perform(const struct test_case *it)
{
	if (it->open)
		it->open();
	it->run();
	if (it->close)
		it->close();
}

static inline void print_verdict(const struct test_case *it, int status)
{
	printf("%s: ", it->name);
	if (atomic_load(&report->is_written))
		printf("%s\n", report->complaint);
	else if (WIFSIGNALED(status))
		printf("killed: %s\n", strsignal(WTERMSIG(status)));
	else if (status != 0)
		printf("ended with %d\n", WEXITSTATUS(status));
	else
		printf("holds\n");
	printf("%s", report->facts);
}

static inline int holds_in_a_process_of_its_own(const struct test_case *it)
{
	int status = 0;
	memset(report, 0, sizeof(*report));
	fflush(stdout);
	pid_t child = fork();
	if (child < 0 || (child > 0 && waitpid(child, &status, 0) != child)) {
		perror("fork");
		exit(2);
	}
	if (child == 0) {
		alarm(CASE_TIMEOUT_SECONDS);
		perform(it);
		exit(0);
	}
	print_verdict(it, status);
	return status == 0 && !atomic_load(&report->is_written);
}

static inline int run_one(const struct test_case *cases, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(cases[i].name, name) != 0)
			continue;
		report->runs_alone = 1;
		perform(&cases[i]);
		print_verdict(&cases[i], 0);
		return 0;
	}
	fprintf(stderr, "there is no case `%s`\n", name);
	return 2;
}

static inline int run_cases(const struct test_case *cases, size_t count, int words, char **word)
{
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	if (words > 1)
		return run_one(cases, count, word[1]);
	size_t hold = 0;
	for (size_t i = 0; i < count; i++)
		hold += holds_in_a_process_of_its_own(&cases[i]);
	printf("%zu of %zu cases hold\n", hold, count);
	return hold == count ? 0 : 1;
}

#define RUN(cases, words, word)                                                \
	run_cases(cases, sizeof(cases) / sizeof((cases)[0]), words, word)

#endif
