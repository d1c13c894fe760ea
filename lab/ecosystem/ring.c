/* A hello, a ring and a reduction, each with a result that every rank checks.
 *
 * A rank that finds a wrong byte says which and ends the whole run. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void fail(const char *what, long at, double found, double wanted)
{
	fprintf(stderr, "rank %d: %s at %ld is %g and not %g\n", rank, what, at, found, wanted);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Rank 0 receives from all ranks. */
static void hello(void)
{
	char text[64];

	if (rank != 0) {
		snprintf(text, sizeof text, "hello from %d of %d", rank, size);
		MPI_Send(text, sizeof text, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
		return;
	}
	for (int from = 1; from < size; from++) {
		char wanted[64];
		MPI_Recv(text, sizeof text, MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		snprintf(wanted, sizeof wanted, "hello from %d of %d", from, size);
		if (strcmp(text, wanted) != 0)
			fail("the hello", from, 0, 1);
	}
	printf("hello: %d ranks\n", size);
}

/* A block of numbers goes round once; every rank adds one to each. */
static void ring(long count)
{
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	long *block = calloc(count, sizeof *block);

	if (rank == 0) {
		for (long i = 0; i < count; i++)
			block[i] = i * 7;
		MPI_Send(block, count, MPI_LONG, next, 2, MPI_COMM_WORLD);
	}
	MPI_Recv(block, count, MPI_LONG, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (long i = 0; i < count; i++) {
		long wanted = i * 7 + (rank == 0 ? size - 1 : rank - 1);
		if (block[i] != wanted)
			fail("the ring", i, block[i], wanted);
		block[i]++;
	}
	if (rank != 0)
		MPI_Send(block, count, MPI_LONG, next, 2, MPI_COMM_WORLD);
	else
		printf("ring: %ld numbers\n", count);
	free(block);
}

/* Whole numbers, so that no order of addition may change a sum. */
static void reduce(long count)
{
	double *mine = calloc(count, sizeof *mine), *sums = calloc(count, sizeof *sums);

	for (long i = 0; i < count; i++)
		mine[i] = (double)((i % 1000) * (rank + 1));
	MPI_Allreduce(mine, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	for (long i = 0; i < count; i++) {
		double wanted = (double)((i % 1000) * (size * (size + 1) / 2));
		if (sums[i] != wanted)
			fail("the sum", i, sums[i], wanted);
	}
	if (rank == 0)
		printf("allreduce: %ld numbers\n", count);
	free(mine);
	free(sums);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	hello();
	/* Inside a packet, a few packets, and what no library copies through its own buffers. */
	ring(1);
	ring(1000);
	ring(300000);
	reduce(1);
	reduce(10000);
	reduce(200000);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("all results are right\n");
	MPI_Finalize();
	return 0;
}
