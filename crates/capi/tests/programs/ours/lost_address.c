/* A device whose address the machine has lost: the list is empty and not null, because few programs check it. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stdlib.h>
#include "../check.h"

static void device_without_address_is_not_listed(void)
{
	/* An address of a network for documentation, which no machine has. */
	CHECK(setenv("ROCI_DEVICES", "gone=203.0.113.77", 1) == 0);
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list != NULL);
	CHECK(count == 0 && list[0] == NULL);
	ibv_free_device_list(list);
}

static const struct test_case CASES[] = {
	CASE(device_without_address_is_not_listed),
};

int main(int words, char **word)
{
	return RUN(CASES, words, word);
}
