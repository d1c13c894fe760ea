//! Breaks every ban of `crates/engine/clippy.toml` once, for `bans.rs` to see clippy object.
//! It is linted in a scratch crate and never run.

use std::{env, fs, net, os, process, thread, time};

pub fn reads_the_clock(then: time::Instant, before: time::SystemTime) {
    _ = time::Instant::now();
    _ = then.elapsed();
    _ = time::SystemTime::now();
    _ = before.elapsed();
}

pub fn starts_threads_and_waits() {
    _ = thread::spawn(|| ());
    _ = thread::Builder::new().spawn(|| ());
    thread::scope(|scope| _ = thread::Builder::new().spawn_scoped(scope, || ()));
    thread::sleep(time::Duration::ZERO);
    thread::park_timeout(time::Duration::ZERO);
}

pub fn opens_sockets() {
    _ = net::UdpSocket::bind("");
    _ = net::TcpStream::connect("");
    _ = net::TcpListener::bind("");
    _ = os::unix::net::UnixDatagram::bind("");
    _ = os::unix::net::UnixStream::connect("");
    _ = os::unix::net::UnixListener::bind("");
}

pub fn touches_files(permissions: fs::Permissions) {
    _ = fs::canonicalize("");
    _ = fs::copy("", "");
    _ = fs::create_dir("");
    _ = fs::create_dir_all("");
    _ = fs::exists("");
    _ = fs::hard_link("", "");
    _ = fs::metadata("");
    _ = fs::read("");
    _ = fs::read_dir("");
    _ = fs::read_link("");
    _ = fs::read_to_string("");
    _ = fs::remove_dir("");
    _ = fs::remove_dir_all("");
    _ = fs::remove_file("");
    _ = fs::rename("", "");
    _ = fs::set_permissions("", permissions);
    _ = fs::symlink_metadata("");
    _ = fs::write("", "");
    _ = fs::DirBuilder::new();
    _ = fs::File::open("");
    _ = fs::OpenOptions::new();
}

pub fn looks_around() {
    _ = env::args();
    _ = env::args_os();
    _ = env::current_dir();
    _ = env::current_exe();
    _ = env::temp_dir();
    _ = env::var("");
    _ = env::var_os("");
    _ = env::vars();
    _ = env::vars_os();
    _ = process::Command::new("");
}
