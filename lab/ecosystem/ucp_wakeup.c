// UCP in its wake-up mode: both ends sleep in poll() until the worker's descriptor is readable, and never spin.
//
// usage: ucp_wakeup                  serve one client
//        ucp_wakeup ADDRESS          send numbered messages of two sizes, and check each reply
//
// A server that has to be woken answers each message with its bytes incremented. `all replies are right` ends the client.
// A program that waits longer than ten seconds names what it waits for, and fails.

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { PORT = 13338, ROUNDS = 500, SHORT = 64, LONG = 70000, PATIENCE = 10000 };

static ucp_worker_h worker;
static int descriptor;
static long sleeps;

static void check(ucs_status_t status, const char *what)
{
	if (status == UCS_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, ucs_status_string(status));
	exit(1);
}

// Sleeps until there may be something to do. The order is that of UCP's documentation: progress until nothing is left, arm, poll.
static void wait_for_progress(const char *what)
{
	if (ucp_worker_progress(worker))
		return;
	ucs_status_t armed = ucp_worker_arm(worker);
	if (armed == UCS_ERR_BUSY)
		return;
	check(armed, "ucp_worker_arm");
	struct pollfd readable = { .fd = descriptor, .events = POLLIN };
	if (poll(&readable, 1, PATIENCE) != 1) {
		fprintf(stderr, "no event in ten seconds, waiting for %s\n", what);
		exit(1);
	}
	sleeps++;
}

static void finish(ucs_status_ptr_t request, const char *what)
{
	if (request == NULL)
		return;
	if (UCS_PTR_IS_ERR(request))
		check(UCS_PTR_STATUS(request), what);
	while (ucp_request_check_status(request) == UCS_INPROGRESS)
		wait_for_progress(what);
	check(ucp_request_check_status(request), what);
	ucp_request_free(request);
}

static void send_message(ucp_ep_h endpoint, const void *bytes, size_t length)
{
	ucp_request_param_t none = { 0 };
	finish(ucp_tag_send_nbx(endpoint, bytes, length, 1, &none), "a send");
}

static void receive_message(void *bytes, size_t length)
{
	ucp_request_param_t none = { 0 };
	finish(ucp_tag_recv_nbx(worker, bytes, length, 1, ~0UL, &none), "a receive");
}

static void fully(ssize_t (*transfer)(int, void *, size_t), int stream, void *bytes, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t now = transfer(stream, (char *)bytes + done, length - done);
		if (now <= 0) {
			perror("the TCP connection");
			exit(1);
		}
		done += now;
	}
}

static ssize_t write_bytes(int stream, void *bytes, size_t length)
{
	return write(stream, bytes, length);
}

// The TCP connection over which the two exchange the addresses of their workers.
static int connect_to(const char *name)
{
	struct addrinfo hints = { .ai_family = name ? AF_UNSPEC : AF_INET6, .ai_socktype = SOCK_STREAM, .ai_flags = name ? 0 : AI_PASSIVE };
	struct addrinfo *found;
	char port[8];
	snprintf(port, sizeof port, "%d", PORT);
	if (getaddrinfo(name, port, &hints, &found)) {
		fprintf(stderr, "%s is no address\n", name);
		exit(1);
	}
	int one = 1, stream = socket(found->ai_family, SOCK_STREAM, 0);
	setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (name ? connect(stream, found->ai_addr, found->ai_addrlen)
		 : bind(stream, found->ai_addr, found->ai_addrlen) || listen(stream, 1)) {
		perror("the TCP connection");
		exit(1);
	}
	freeaddrinfo(found);
	if (name)
		return stream;
	int accepted = accept(stream, NULL, NULL);
	close(stream);
	return accepted;
}

static ucp_ep_h exchange_addresses(int stream)
{
	ucp_address_t *ours, *theirs;
	size_t length, other;
	check(ucp_worker_get_address(worker, &ours, &length), "ucp_worker_get_address");
	fully(write_bytes, stream, &length, sizeof length);
	fully(write_bytes, stream, ours, length);
	fully(read, stream, &other, sizeof other);
	theirs = malloc(other);
	fully(read, stream, theirs, other);
	ucp_worker_release_address(worker, ours);
	ucp_ep_params_t parameters = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = theirs };
	ucp_ep_h endpoint;
	check(ucp_ep_create(worker, &parameters, &endpoint), "ucp_ep_create");
	free(theirs);
	return endpoint;
}

static size_t length_of(int round)
{
	return round % 10 == 9 ? LONG : SHORT;
}

static int ask(ucp_ep_h endpoint)
{
	static unsigned char sent[LONG], reply[LONG];
	for (int round = 0; round < ROUNDS; round++) {
		size_t length = length_of(round);
		for (size_t i = 0; i < length; i++)
			sent[i] = round * 7 + i;
		send_message(endpoint, sent, length);
		receive_message(reply, length);
		for (size_t i = 0; i < length; i++)
			if (reply[i] != (unsigned char)(sent[i] + 1)) {
				fprintf(stderr, "byte %zu of reply %d is wrong\n", i, round);
				return 1;
			}
	}
	return 0;
}

static int answer(ucp_ep_h endpoint)
{
	static unsigned char bytes[LONG];
	for (int round = 0; round < ROUNDS; round++) {
		size_t length = length_of(round);
		receive_message(bytes, length);
		for (size_t i = 0; i < length; i++)
			bytes[i]++;
		send_message(endpoint, bytes, length);
	}
	return 0;
}

int main(int count, char **words)
{
	ucp_config_t *config;
	ucp_context_h context;
	ucp_params_t parameters = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP };
	ucp_worker_params_t single = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE };
	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	check(ucp_init(&parameters, config, &context), "ucp_init");
	ucp_config_release(config);
	check(ucp_worker_create(context, &single, &worker), "ucp_worker_create");
	check(ucp_worker_get_efd(worker, &descriptor), "ucp_worker_get_efd");

	int stream = connect_to(count > 1 ? words[1] : NULL);
	ucp_ep_h endpoint = exchange_addresses(stream);
	int wrong = count > 1 ? ask(endpoint) : answer(endpoint);

	ucp_request_param_t none = { 0 };
	finish(ucp_ep_close_nbx(endpoint, &none), "the end of the endpoint");
	// The peer may still need answers from us.
	char end = 0;
	fully(write_bytes, stream, &end, 1);
	while (recv(stream, &end, 1, MSG_DONTWAIT) < 0)
		if (!ucp_worker_progress(worker))
			usleep(1000);
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
	if (sleeps == 0) {
		fprintf(stderr, "it never slept\n");
		return 1;
	}
	if (count > 1 && !wrong)
		puts("all replies are right");
	return wrong;
}
