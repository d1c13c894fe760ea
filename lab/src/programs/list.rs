//! The programs that must run, and how each is run: data only.

use super::network::Family::{self, V4, V6};

const BOTH: &[Family] = &[V4, V6];
const ONLY_V4: &[Family] = &[V4];

/// Where the pingpongs and perftest, and qperf, wait for their clients.
const EXCHANGE_PORT: u16 = 18515;
const QPERF_PORT: u16 = 19765;
/// Where udpong has its socket.
const UDPONG_PORT: u16 = 7174;

/// One program with some options, run over each network and family that it can use.
///
/// In command lines, `{device}` is the device, `{gid}` the index of its GID in the family of the run,
/// `{address}` the server's address in that family, `{own}` the client's, `{v4}` the server's IPv4
/// address whatever the family, `{roci}` the command under test, `{scripts}` the directory of our scripts, `{scratch}` one to write to.
pub(crate) struct Row {
    pub(crate) program: &'static str,
    /// What is special about this run, for the table.
    pub(crate) options: String,
    pub(crate) server: Server,
    pub(crate) client: Option<String>,
    /// How many clients run at once, each started when the one before has printed this.
    pub(crate) clients: (usize, &'static str),
    pub(crate) families: &'static [Family],
    /// What one of the outputs must contain; every client must end with success in any case.
    pub(crate) prints: &'static str,
    /// Why it can't work, with any library, over this kind of network.
    pub(crate) unsupported: Option<&'static str>,
}

/// The side that waits.
pub(crate) enum Server {
    None,
    /// It must end with success when its client has ended.
    Ends(String, Ready),
    /// It would serve others after its client, and is ended.
    Stays(String, Ready),
}

/// How to know that a server can be reached.
#[derive(Clone, Copy)]
pub(crate) enum Ready {
    /// It listens at this TCP port.
    Tcp(u16),
    /// It has a socket at this UDP port.
    Udp(u16),
    /// It has reserved a service of the connection manager and waits: so it listens.
    Service,
    /// It has reserved a service and listens in the next moment, but polls and never waits.
    BusyService,
    /// It prints this.
    Says(&'static str),
}

impl Row {
    /// Whether it is one process, which no network can matter to.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.server, Server::None) || self.client.is_none()
    }

    pub(crate) fn alone(program: &'static str, options: &str, prints: &'static str) -> Self {
        Self {
            program,
            options: options.to_owned(),
            server: Server::None,
            client: Some(format!("{program} {options}")),
            clients: (1, ""),
            families: ONLY_V4,
            prints,
            unsupported: None,
        }
    }

    pub(crate) fn pair(program: &'static str, server: Server, client: &str) -> Self {
        Self {
            program,
            options: String::new(),
            server,
            client: Some(client.to_owned()),
            clients: (1, ""),
            families: BOTH,
            prints: "",
            unsupported: None,
        }
    }

    pub(crate) fn options(mut self, options: &str) -> Self {
        options.clone_into(&mut self.options);
        self
    }

    pub(crate) fn prints(mut self, text: &'static str) -> Self {
        self.prints = text;
        self
    }

    fn only_v4(mut self) -> Self {
        self.families = ONLY_V4;
        self
    }

    pub(crate) fn unsupported(mut self, why: &'static str) -> Self {
        self.unsupported = Some(why);
        self
    }

    fn clients(mut self, number: usize, next_when: &'static str) -> Self {
        self.clients = (number, next_when);
        self
    }
}

pub(crate) fn ends(command: &str, ready: Ready) -> Server {
    Server::Ends(command.to_owned(), ready)
}

pub(crate) fn stays(command: &str, ready: Ready) -> Server {
    Server::Stays(command.to_owned(), ready)
}

/// Every run, in the order of the table.
pub(super) fn rows() -> Vec<Row> {
    let groups = [
        looking(),
        pingpongs(),
        connections(),
        rsockets(),
        over_rsockets(),
        perftest(),
        qperf(),
        pyverbs(),
    ];
    groups.into_iter().flatten().collect()
}

fn looking() -> Vec<Row> {
    vec![
        Row::alone("ibv_devices", "", "roci0"),
        Row::alone("ibv_devinfo", "-v", "PORT_ACTIVE"),
        Row {
            client: None,
            ..Row::pair(
                "ibv_asyncwatch",
                stays("ibv_asyncwatch -d {device}", Ready::Says("async event FD")),
                "",
            )
            .only_v4()
        },
    ]
}

/// Both sides get the same options; the client gets the server's address.
fn pingpongs() -> Vec<Row> {
    const OPTIONS: [(&str, &[&str]); 5] = [
        ("ibv_rc_pingpong", &["", "-e", "-c", "-o", "-N", "-j", "-t"]),
        ("ibv_uc_pingpong", &["", "-e", "-c"]),
        ("ibv_ud_pingpong", &["", "-e", "-c"]),
        ("ibv_srq_pingpong", &["", "-e", "-c", "-o"]),
        ("ibv_xsrq_pingpong", &["", "-e", "-o"]),
    ];
    let runs = OPTIONS.iter().flat_map(|(program, runs)| {
        runs.iter().map(move |options| {
            // For the fifth one, -n counts whole conversations.
            let count = if *program == "ibv_xsrq_pingpong" {
                5
            } else {
                200
            };
            let line = format!("{program} -d {{device}} -g {{gid}} -n {count} {options}");
            let server = ends(&line, Ready::Tcp(EXCHANGE_PORT));
            Row::pair(program, server, &format!("{line} {{v4}}")).options(options)
        })
    });
    runs.collect()
}

fn connections() -> Vec<Row> {
    use Ready::{Says, Service};
    let rping = "rping -c -a {address} -v -V -C 5";
    vec![
        Row::pair(
            "rping",
            ends("rping -s -a {address} -v -V -C 5", Service),
            rping,
        )
        .options("-v -V -C 5")
        .prints("rdma-ping-4"),
        Row::pair(
            "rping",
            ends(
                "env ROCI_SHORTCUT=0 rping -s -a {address} -v -V -C 500",
                Service,
            ),
            "env ROCI_SHORTCUT=0 rping -c -a {address} -v -V -C 500",
        )
        .options("ROCI_SHORTCUT=0")
        .prints("rdma-ping-499"),
        // A server that gets two requests at once forgets the first, with any library.
        Row::pair(
            "rping",
            stays("rping -s -P -a {address}", Service),
            "stdbuf -oL rping -c -a {address} -v -V -C 2000",
        )
        .options("-P, four clients at once")
        .clients(4, "rdma-ping-0")
        .prints("rdma-ping-1999"),
        Row::pair(
            "ucmatose",
            ends("ucmatose -b {address}", Service),
            "ucmatose -s {address}",
        )
        .prints("return status 0"),
        Row::pair(
            "ucmatose",
            ends("ucmatose -b {address} -c 8 -C 20 -S 4096", Service),
            "ucmatose -s {address} -c 8 -C 20 -S 4096",
        )
        .options("-c 8 -C 20 -S 4096")
        .prints("return status 0"),
        Row::pair(
            "udaddy",
            ends("udaddy -b {address}", Service),
            "udaddy -s {address}",
        )
        .prints("return status 0"),
        Row::pair(
            "mckey",
            ends("mckey -m 239.7.7.7 -b {address}", Says("joined")),
            "mckey -m 239.7.7.7 -b {own} -s",
        )
        .only_v4()
        .prints("return status 0"),
        Row::pair(
            "cmtime",
            stays("cmtime -b {address}", Service),
            "cmtime -s {address} -c 20",
        )
        .options("-c 20")
        .prints("connect"),
        Row::pair(
            "rdma_server, rdma_client",
            ends("rdma_server -s {address}", Service),
            "rdma_client -s {address}",
        )
        .prints("rdma_client: end 0"),
        Row::pair(
            "rdma_xserver, rdma_xclient",
            ends("rdma_xserver", Service),
            "rdma_xclient -s {address}",
        )
        .only_v4()
        .prints("rdma_xclient: end 0"),
        Row::pair(
            "rdma_xserver, rdma_xclient",
            ends("rdma_xserver -c x", Service),
            "rdma_xclient -s {address} -c x",
        )
        .only_v4()
        .options("-c x")
        .prints("rdma_xclient: end 0"),
    ]
}

fn rsockets() -> Vec<Row> {
    const STREAMS: [&str; 5] = ["", "-T b", "-T n", "-T a", "-T v"];
    let mut rows = Vec::new();
    for program in ["rstream", "riostream"] {
        for options in STREAMS {
            let common = format!("-S 4096 -C 20 -I 20 {options}");
            let server = format!("{program} -b {{address}} {common}");
            let client = format!("{program} -s {{address}} {common}");
            let row = Row::pair(program, ends(&server, Ready::BusyService), &client);
            rows.push(row.options(options));
        }
    }
    for options in ["", "-T e"] {
        let server = format!("udpong -b {{address}} -S 1000 {options}");
        let client = format!("udpong -s {{address}} -S 1000 -C 100 {options}");
        let row = Row::pair("udpong", stays(&server, Ready::Udp(UDPONG_PORT)), &client);
        rows.push(row.options(options));
    }
    let client = "rcopy /etc/services {address}:{scratch}/copy";
    rows.push(Row::pair("rcopy", stays("rcopy", Ready::Service), client).only_v4());
    rows
}

/// TCP programs with `--rsocket`. There is no TCP listener that a client could fall back to.
fn over_rsockets() -> Vec<Row> {
    let pair = |program, server: &str, client: &str| {
        let line = |words: &str| format!("env ROCI_RSOCKET=1 {words}");
        let server = stays(&line(server), Ready::Service);
        Row::pair(program, server, &line(client))
            .options("--rsocket")
            .only_v4()
    };
    vec![
        pair(
            "Python's http.server, curl",
            "/usr/bin/python3 -m http.server --bind {address} --directory /etc 8000",
            "curl -sS http://{address}:8000/services",
        )
        .prints("ssh"),
        pair(
            "redis-server, redis-cli",
            "redis-server --bind {address} --port 6390 --protected-mode no --dir {scratch}",
            "redis-cli -h {address} -p 6390 ping",
        )
        .prints("PONG"),
        pair(
            "nginx, curl",
            "/usr/sbin/nginx -e stderr -p {scratch} -c {scripts}/../nginx.conf",
            "curl -sS http://{address}:8080/services",
        )
        .prints("ssh"),
    ]
}

fn perftest() -> Vec<Row> {
    const SEND_BW: &[&str] = &[
        "",
        "-c UC",
        "-c UC -q 4",
        "-c UD",
        "-c XRC",
        "-R",
        "-a",
        "-q 16",
        "-e",
        "-b",
        "--use-srq",
    ];
    const OPTIONS: [(&str, &[&str]); 8] = [
        ("ib_send_bw", SEND_BW),
        (
            "ib_send_lat",
            &["", "-c UC", "-c UD", "-c XRC", "-R", "-e", "--use-srq"],
        ),
        (
            "ib_write_bw",
            &["", "-c UC", "-c XRC", "-R", "-a", "-q 16", "-b"],
        ),
        ("ib_write_lat", &["", "-c UC", "-c XRC", "-R"]),
        (
            "ib_read_bw",
            &["", "-c XRC", "-R", "-a", "-q 16", "-e", "-b"],
        ),
        ("ib_read_lat", &["", "-c XRC", "-R", "-e"]),
        (
            "ib_atomic_bw",
            &["", "-A CMP_AND_SWAP", "-c XRC", "-R", "-q 16", "-b"],
        ),
        ("ib_atomic_lat", &["", "-A CMP_AND_SWAP", "-c XRC", "-R"]),
    ];
    let runs = OPTIONS.iter();
    runs.flat_map(|(program, runs)| runs.iter().map(|options| measurement(program, options)))
        .chain(["ib_send_lat", "ib_write_bw", "ib_write_lat"].map(through_memory))
        .collect()
}

fn through_memory(program: &'static str) -> Row {
    let line = format!("env ROCI_SHORTCUT=0 {program} -d {{device}} -x {{gid}} -F -n 5000");
    let client = format!("{line} {{v4}}");
    Row::pair(program, ends(&line, Ready::Tcp(EXCHANGE_PORT)), &client)
        .options("ROCI_SHORTCUT=0")
        .prints("#bytes")
        .only_v4()
}

/// Both sides get the same options, which matter to IPv6 no more than to IPv4.
fn measurement(program: &'static str, options: &str) -> Row {
    let count = if options == "-a" { 10 } else { 100 };
    let line = format!("{program} -d {{device}} -x {{gid}} -F -n {count} {options}");
    let client = format!("{line} {{v4}}");
    let ready = match options {
        // Even the options of the test travel over a connection.
        "-R" => Ready::Service,
        _ => Ready::Tcp(EXCHANGE_PORT),
    };
    let row = Row::pair(program, ends(&line, ready), &client);
    let row = row.options(options).prints("#bytes");
    if options.is_empty() {
        row
    } else {
        row.only_v4()
    }
}

fn qperf() -> Vec<Row> {
    const CONNECTED: [&str; 8] = [
        "rc_bw",
        "rc_lat",
        "rc_rdma_write_bw",
        "rc_rdma_read_lat",
        "rc_compare_swap_mr",
        "rc_fetch_add_mr",
        "ver_rc_compare_swap",
        "ver_rc_fetch_add",
    ];
    const UNCONNECTED: [&str; 5] = ["uc_bw", "uc_lat", "uc_rdma_write_bw", "ud_bw", "ud_lat"];
    let run = |test: &str, by: &str| {
        Row::pair(
            "qperf",
            stays("qperf", Ready::Tcp(QPERF_PORT)),
            &format!("qperf {{v4}} -t 1 {by} {test}"),
        )
        .options(test)
        .only_v4()
        .prints(":")
    };
    let connected = CONNECTED.iter().map(|test| run(test, "-cm 1"));
    let unconnected = UNCONNECTED.iter().map(|test| {
        let why = "for UC and UD its two sides exchange LIDs and no GIDs, and `-cm` has no effect; \
                   RoCE devices have no LIDs";
        run(test, "").unsupported(why)
    });
    connected.chain(unconnected).collect()
}

fn pyverbs() -> Vec<Row> {
    vec![
        Row {
            client: Some("/usr/bin/python3 {scripts}/queries.py {device}".to_owned()),
            ..Row::alone("pyverbs", "devices and queries", "all answers make sense")
        },
        Row {
            client: Some("/usr/bin/python3 {scripts}/traffic.py {device} {gid}".to_owned()),
            families: BOTH,
            ..Row::alone("pyverbs", "RC and UD traffic", "all bytes are right")
        },
        Row::pair(
            "pyverbs",
            ends(
                "/usr/bin/python3 {scripts}/connection.py server {address}",
                Ready::Service,
            ),
            "/usr/bin/python3 {scripts}/connection.py client {address}",
        )
        .options("connection manager")
        .prints("all bytes are right"),
    ]
}
