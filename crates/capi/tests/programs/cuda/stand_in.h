/* What programs here call of the stand-in for libcuda, beside functions of libcuda itself. */
#ifndef STAND_IN_H
#define STAND_IN_H

#include <stddef.h>
#include <stdint.h>

/* What was done since the program started. */
struct stand_in_counts {
	int to_device, to_host, waits, deepest_wait;
};

struct stand_in {
	/* Memory that the processor can't access, as that of a GPU. Returns its address. */
	uint64_t (*allocate)(size_t length);
	/* Memory that both can access. */
	uint64_t (*allocate_managed)(size_t length);
	void (*release)(uint64_t address);
	/* Where the program sees the bytes of such memory. */
	unsigned char *(*window)(uint64_t address);
	/* From now on, functions with this name return an error; NULL ends that. */
	void (*fail)(const char *function);
	struct stand_in_counts (*counts)(void);
};

#endif
