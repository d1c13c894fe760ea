/* Sockets over RDMA: streams and datagrams, both directions, all ends. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include "check.h"

#define LONG (3 * 1000 * 1000)

static struct sockaddr_in here(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	CHECK(inet_pton(AF_INET, own_address(), &address.sin_addr) == 1);
	return address;
}

static int port_of(int socket)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	CHECK(rgetsockname(socket, (struct sockaddr *)&address, &length) == 0);
	CHECK(length == sizeof(address));
	return ntohs(address.sin_port);
}

static unsigned char byte_at(size_t place)
{
	return place * 7 + place / 251;
}

/* Echoes everything until the peer has nothing more to say. */
static void *echo(void *listener)
{
	static char data[10000];
	int socket = raccept(*(int *)listener, NULL, NULL);
	CHECK(socket >= 0);
	ssize_t length;
	while ((length = rrecv(socket, data, sizeof(data), 0)) > 0)
		CHECK(rsend(socket, data, length, 0) == length);
	CHECK(length == 0);
	CHECK(rshutdown(socket, SHUT_WR) == 0);
	CHECK(rclose(socket) == 0);
	return NULL;
}

static void *send_long(void *socket)
{
	unsigned char *data = malloc(LONG);
	for (size_t i = 0; i < LONG; i++)
		data[i] = byte_at(i);
	CHECK(rsend(*(int *)socket, data, LONG, 0) == LONG);
	free(data);
	CHECK(rshutdown(*(int *)socket, SHUT_WR) == 0);
	CHECK(rsend(*(int *)socket, "more", 4, 0) == -1);
	return NULL;
}

static void stream(int small)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), client = rsocket(AF_INET, SOCK_STREAM, 0);
	CHECK(listener >= 0 && client >= 0 && listener != client);
	if (small) {
		int size = 8192, queue = 16;
		for (int i = 0; i < 2; i++) {
			int socket = i ? client : listener;
			CHECK(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) == 0);
			CHECK(rsetsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) == 0);
			CHECK(rsetsockopt(socket, SOL_RDMA, RDMA_RQSIZE, &queue, sizeof(queue)) == 0);
			CHECK(rsetsockopt(socket, SOL_RDMA, RDMA_SQSIZE, &queue, sizeof(queue)) == 0);
		}
	}
	struct sockaddr_in address = here(0);
	CHECK(rbind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(listener, 4) == 0);
	address = here(port_of(listener));
	pthread_t server, sender;
	CHECK(pthread_create(&server, NULL, echo, &listener) == 0);
	CHECK(rconnect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
	struct sockaddr_in peer;
	socklen_t length = sizeof(peer);
	CHECK(rgetpeername(client, (struct sockaddr *)&peer, &length) == 0);
	CHECK(peer.sin_port == address.sin_port);

	char nothing;
	CHECK(rrecv(client, &nothing, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	CHECK(pthread_create(&sender, NULL, send_long, &client) == 0);
	unsigned char *back = malloc(LONG);
	CHECK(rrecv(client, back, 1, MSG_PEEK) == 1 && back[0] == byte_at(0));
	CHECK(rrecv(client, back, LONG, MSG_WAITALL) == LONG);
	for (size_t i = 0; i < LONG; i++)
		CHECK(back[i] == byte_at(i));
	free(back);
	CHECK(rrecv(client, &nothing, 1, 0) == 0);
	CHECK(pthread_join(sender, NULL) == 0);
	CHECK(pthread_join(server, NULL) == 0);
	CHECK(rclose(client) == 0 && rclose(listener) == 0);
	CHECK(rclose(listener) == -1 && errno == EBADF);
}

static void refused(void)
{
	int client = rsocket(AF_INET, SOCK_STREAM, 0), beside = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in other = here(0), nobody = here(7999);
	/* Somebody must be at the address to refuse. */
	CHECK(rbind(beside, (struct sockaddr *)&other, sizeof(other)) == 0);
	CHECK(rconnect(client, (struct sockaddr *)&nobody, sizeof(nobody)) == -1);
	CHECK(errno == ECONNREFUSED);
	CHECK(rclose(client) == 0 && rclose(beside) == 0);
}

static void without_blocking(void)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), client = rsocket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = here(0);
	CHECK(rfcntl(listener, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rfcntl(client, F_SETFL, O_NONBLOCK) == 0);
	CHECK(rfcntl(client, F_GETFL) == O_NONBLOCK);
	CHECK(rbind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(listener, 4) == 0);
	CHECK(raccept(listener, NULL, NULL) == -1 && errno == EAGAIN);
	address = here(port_of(listener));
	CHECK(rconnect(client, (struct sockaddr *)&address, sizeof(address)) == -1);
	CHECK(errno == EINPROGRESS);
	int guest = -1, writable = 0;
	while (guest < 0 || !writable) {
		struct pollfd both[2] = { { .fd = listener, .events = POLLIN },
					  { .fd = client, .events = POLLOUT } };
		CHECK(rpoll(both, 2, 5000) > 0);
		if (both[0].revents & POLLIN)
			guest = raccept(listener, NULL, NULL);
		writable = both[1].revents & POLLOUT;
	}
	int error = -1;
	socklen_t length = sizeof(error);
	CHECK(rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0);
	CHECK(rwrite(client, "x", 1) == 1);
	fd_set readable;
	FD_ZERO(&readable);
	FD_SET(guest, &readable);
	CHECK(rselect(guest + 1, &readable, NULL, NULL, NULL) == 1 && FD_ISSET(guest, &readable));
	char got;
	CHECK(rread(guest, &got, 1) == 1 && got == 'x');
	struct pollfd quiet = { .fd = guest, .events = POLLIN };
	CHECK(rpoll(&quiet, 1, 20) == 0);
	CHECK(rclose(client) == 0);
	CHECK(rpoll(&quiet, 1, 5000) == 1);
	CHECK(rread(guest, &got, 1) == 0);
	CHECK(rclose(guest) == 0 && rclose(listener) == 0);
}

static void *accept_and_map(void *listener)
{
	static volatile char memory[4096];
	int socket = raccept(*(int *)listener, NULL, NULL);
	CHECK(socket >= 0);
	CHECK(riomap(socket, (void *)memory, sizeof(memory), PROT_WRITE, 0, 100) == 100);
	CHECK(rsend(socket, "m", 1, 0) == 1);
	char done;
	CHECK(rrecv(socket, &done, 1, 0) == 1);
	CHECK(memcmp((char *)memory + 10, "directly", 9) == 0);
	CHECK(riounmap(socket, (void *)memory, sizeof(memory)) == 0);
	CHECK(rclose(socket) == 0);
	return NULL;
}

static void direct(void)
{
	int listener = rsocket(AF_INET, SOCK_STREAM, 0), client = rsocket(AF_INET, SOCK_STREAM, 0);
	int maps = 4;
	CHECK(rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof(maps)) == 0);
	CHECK(rsetsockopt(client, SOL_RDMA, RDMA_IOMAPSIZE, &maps, sizeof(maps)) == 0);
	struct sockaddr_in address = here(0);
	CHECK(rbind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rlisten(listener, 4) == 0);
	address = here(port_of(listener));
	pthread_t server;
	CHECK(pthread_create(&server, NULL, accept_and_map, &listener) == 0);
	CHECK(rconnect(client, (struct sockaddr *)&address, sizeof(address)) == 0);
	char mapped;
	CHECK(rrecv(client, &mapped, 1, 0) == 1);
	CHECK(riowrite(client, "nowhere", 8, 99999, 0) == 0);
	CHECK(riowrite(client, "directly", 9, 110, 0) == 9);
	CHECK(rsend(client, "d", 1, 0) == 1);
	CHECK(pthread_join(server, NULL) == 0);
	CHECK(rclose(client) == 0 && rclose(listener) == 0);
}

static void datagrams(void)
{
	int left = rsocket(AF_INET, SOCK_DGRAM, 0), right = rsocket(AF_INET, SOCK_DGRAM, 0);
	CHECK(left >= 0 && right >= 0);
	struct sockaddr_in address = here(0);
	CHECK(rbind(left, (struct sockaddr *)&address, sizeof(address)) == 0);
	CHECK(rbind(right, (struct sockaddr *)&address, sizeof(address)) == 0);
	address = here(port_of(left));
	CHECK(rconnect(right, (struct sockaddr *)&address, sizeof(address)) == 0);
	for (int i = 0; i < 20; i++) {
		char out[64], in[64];
		int length = snprintf(out, sizeof(out), "datagram %d", i);
		CHECK(rsend(right, out, length, 0) == length);
		struct sockaddr_in from;
		socklen_t from_length = sizeof(from);
		CHECK(rrecvfrom(left, in, sizeof(in), 0, (struct sockaddr *)&from, &from_length) == length);
		CHECK(memcmp(in, out, length) == 0);
		CHECK(ntohs(from.sin_port) == port_of(right));
		CHECK(rsendto(left, in, length, 0, (struct sockaddr *)&from, from_length) == length);
		CHECK(rrecv(right, in, sizeof(in), 0) == length);
	}
	char nothing;
	CHECK(rrecv(left, &nothing, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	static char too_long[4096];
	CHECK(rsend(right, too_long, sizeof(too_long), 0) == -1 && errno == EMSGSIZE);
	CHECK(rclose(left) == 0 && rclose(right) == 0);
}

int main(void)
{
	stream(0);
	stream(1);
	refused();
	without_blocking();
	direct();
	datagrams();
	return finish();
}
