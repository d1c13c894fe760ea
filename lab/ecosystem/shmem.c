// OpenSHMEM: every process writes to, reads from and counts at every other one, and checks each number.
//
// Prints `all results are right` once if everything was as it should be.

#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBERS = 10000, ROUNDS = 100 };

static int wrong;

static void expect(const char *what, int index, long found, long wanted)
{
	if (found != wanted && wrong++ < 5)
		fprintf(stderr, "%s[%d] is %ld instead of %ld\n", what, index, found, wanted);
}

// What a process keeps in its own part of an array.
static long number(int owner, int index)
{
	return owner * 1000003L + index;
}

int main(void)
{
	shmem_init();
	int me = shmem_my_pe(), all = shmem_n_pes();
	int right = (me + 1) % all, left = (me + all - 1) % all;
	long *kept = shmem_calloc(NUMBERS, sizeof *kept);
	long *written = shmem_calloc(NUMBERS, sizeof *written);
	long *counter = shmem_calloc(1, sizeof *counter);
	long *swapped = shmem_calloc(1, sizeof *swapped);
	long *source = shmem_calloc(1, sizeof *source);
	long *sum = shmem_calloc(1, sizeof *sum);
	static long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
	static long sync[SHMEM_REDUCE_SYNC_SIZE];
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		sync[i] = SHMEM_SYNC_VALUE;
	long *mine = malloc(NUMBERS * sizeof *mine);
	for (int i = 0; i < NUMBERS; i++)
		kept[i] = mine[i] = number(me, i);
	*source = me + 1;
	shmem_barrier_all();

	shmem_long_put(written, mine, NUMBERS, right);
	shmem_barrier_all();
	for (int i = 0; i < NUMBERS; i++)
		expect("written", i, written[i], number(left, i));

	shmem_long_get(mine, kept, NUMBERS, right);
	for (int i = 0; i < NUMBERS; i++)
		expect("read", i, mine[i], number(right, i));

	for (int i = 0; i < ROUNDS; i++)
		shmem_long_atomic_add(counter, i, 0);
	for (int winner = 0; winner < all; winner++) {
		if (winner == me)
			expect("swapped", me, shmem_long_atomic_compare_swap(swapped, me, me + 1, 0), me);
		shmem_barrier_all();
	}
	shmem_long_sum_to_all(sum, source, 1, 0, 0, all, work, sync);
	shmem_barrier_all();
	expect("sum", 0, *sum, all * (all + 1) / 2);
	if (me == 0) {
		expect("counter", 0, *counter, all * (ROUNDS * (ROUNDS - 1L) / 2));
		expect("swapped", 0, *swapped, all);
	}

	// Success is printed only if all ranks have succeeded.
	*source = wrong;
	shmem_barrier_all();
	shmem_long_sum_to_all(sum, source, 1, 0, 0, all, work, sync);
	if (me == 0 && *sum == 0)
		puts("all results are right");
	fflush(stdout);
	int status = *sum != 0;
	shmem_barrier_all();
	// Debian 12's `shmem_finalize` ends with a segmentation fault, over TCP too.
	shmem_global_exit(status);
	return status;
}
