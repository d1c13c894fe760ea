"""mpi4py: a ring with several lengths, and collective operations; every byte is checked."""

from mpi4py import MPI

from meeting import pattern

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
left, right = (rank - 1) % size, (rank + 1) % size
for length in (1, 1000, 300_000):
    received = bytearray(length)
    world.Sendrecv(pattern(length, rank + 2), right, 0, received, left, 0)
    assert received == pattern(length, left + 2), f"{length} bytes from {left} differ"

assert world.allreduce(rank + 1) == size * (size + 1) // 2
assert world.alltoall([(rank, to) for to in range(size)]) == [(peer, rank) for peer in range(size)]
assert world.bcast("told" if rank == 0 else None) == "told"

# One-sided: every rank writes its number to its right neighbour.
window = MPI.Win.Allocate(8, 1, comm=world)
window.Fence()
window.Put(bytes([rank + 1]) * 8, right)
window.Fence()
assert bytes(window.tomemory()) == bytes([left + 1]) * 8
window.Free()

if rank == 0:
    print(MPI.Get_library_version().splitlines()[0])
    print("all results are right")
