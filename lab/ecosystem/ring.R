# Rmpi: a ring and a sum, every number checked.
suppressMessages(library(Rmpi))
rank <- mpi.comm.rank(0)
size <- mpi.comm.size(0)
numbers <- seq_len(50000)
right <- (rank + 1) %% size
left <- (rank - 1) %% size
mpi.isend(as.double(numbers + rank), 2, right, 0, comm = 0)
received <- mpi.recv(double(50000), 2, left, 0, comm = 0)
mpi.wait(0)
stopifnot(all(received == numbers + left))
total <- mpi.allreduce(as.double(rank + 1), type = 2, op = "sum", comm = 0)
stopifnot(total == size * (size + 1) / 2)
mpi.barrier(0)
if (rank == 0) cat("all results are right\n")
mpi.quit()
