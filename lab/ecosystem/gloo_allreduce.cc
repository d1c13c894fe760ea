// Gloo's ring over its ibverbs transport: sums of 100,000 numbers, three times, each checked.

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce_ring.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: %s RANK SIZE FOLDER DEVICE GID\n", argv[0]);
    return 2;
  }
  const int rank = atoi(argv[1]), size = atoi(argv[2]);
  gloo::rendezvous::FileStore files(argv[3]);
  gloo::transport::ibverbs::attr where;
  where.name = argv[4];
  where.port = 1;
  where.index = atoi(argv[5]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  auto device = gloo::transport::ibverbs::CreateDevice(where);
  context->connectFullMesh(files, device);

  std::vector<int> numbers(100000);
  const int count = static_cast<int>(numbers.size());
  gloo::AllreduceRing<int> sum(context, {numbers.data()}, count);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < count; i++) numbers[i] = i + rank + round;
    sum.run();
    for (int i = 0; i < count; i++) {
      const int wanted = size * (i + round) + size * (size - 1) / 2;
      if (numbers[i] != wanted) {
        printf("the sum %d is %d instead of %d\n", i, numbers[i], wanted);
        return 1;
      }
    }
  }
  printf("all results are right\n");
  fflush(stdout);

  // Its buffers may not be destroyed while the ring's last notification is under way.
  std::vector<std::string> everybody;
  for (int i = 0; i < size; i++) everybody.push_back("done" + std::to_string(i));
  files.set(everybody[rank], {'1'});
  files.wait(everybody);
  std::quick_exit(0);
}
