//! `roci run`: runs an unmodified RDMA program on our devices.

mod content_directory;
pub(crate) mod device_files;
mod elf;
pub(crate) mod environment;
mod libraries;
mod program;
mod stand_ins;

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::output::{complain, remark};
use device_files::Reader;
use elf::CLibrary;
use environment::{Environment, Settings};
use libraries::Libraries;
use program::{Loading, Program, ProgramError};

/// The shell of every system: programs usually have its C library.
const SHELL: &str = "/bin/sh";

/// The directory with the libraries that programs load.
pub(crate) fn find_libraries() -> anyhow::Result<PathBuf> {
    Ok(Libraries::find(usual_c_library())?.directory)
}

/// The C library of this system's programs.
pub(crate) fn usual_c_library() -> CLibrary {
    let shell = Program::at(SHELL.into());
    match shell.and_then(|shell| shell.loading()) {
        Ok(Loading::With(library)) => library,
        _ => CLibrary::Glibc,
    }
}

/// The exit codes of `env`, `nohup` and `timeout` when they fail themselves.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// The options of `roci run`.
#[derive(Args)]
#[command(after_help = "\
The program, and everything that it starts, loads Rocinante's libibverbs and librdmacm instead of the
system's. This also works with scripts, Python and mpirun. The commands `rdma`, `show_gids` and
`ibdev2netdev` show Rocinante's devices. The program replaces `roci run` in the same process, so
exit code, signals and terminal are the program's. If it can't be started, the exit code is 127
(no such program), 126 (not executable) or 125 (any other error).

Examples:
  roci run -- ibv_devinfo -v
  roci run -- ib_write_bw                                    the server, and in another terminal:
  roci run -- ib_write_bw 127.0.0.1                          the client
  roci run --pcap trace.pcapng -- rping -c -a 10.0.0.7 -C 3  write a capture for Wireshark
  roci run --pcap trace.pcapng --pcap-ring 64M -- ./my-test  only the newest packets
  roci run --fault loss=1% -- ibv_rc_pingpong -g 0 10.0.0.7  with packet loss; `roci gids` shows the index for -g
  roci run --devices mlx5_0=127.0.0.2 -- ./my-program        on a device with this name
  roci run --explain -- rping -c -a 10.0.0.7 -C 3            explain errors on stderr
  roci run --rsocket -- redis-server --bind 10.0.0.7         its TCP connections over RDMA
  roci run --check=fail -- ./my-test                         find races and other mistakes")]
pub(crate) struct Options {
    #[command(flatten)]
    settings: Settings,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Replaces this process by the program. Returns only if that fails.
pub(crate) fn run(options: &Options) -> ExitCode {
    match start(options) {
        Ok(never) => match never {},
        Err(error) => {
            complain(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<ProgramError>() {
        Some(ProgramError::NotFound { .. }) => NOT_FOUND,
        Some(_) => NOT_EXECUTABLE,
        None => FAILED,
    }
}

fn start(options: &Options) -> anyhow::Result<Infallible> {
    let (name, arguments) = (&options.program[0], &options.program[1..]);
    let mut c_library = None;
    let program = match stand_ins::named(name)? {
        Some(path) => Program::at(path)?,
        None => {
            let program = Program::find(name)?;
            match program.loading()? {
                Loading::With(library) => c_library = Some(library),
                Loading::Never(note) => remark(note),
                Loading::Unknown => {}
            }
            program
        }
    };
    let c_library = c_library.unwrap_or_else(usual_c_library);
    let environment = Environment::new(&options.settings, Reader::Program, c_library)?;
    let mut command = Command::new(program.path());
    command.arg0(name).args(arguments).envs(environment.set());
    let failed = command.exec();
    Err(rejected(&program, failed).into())
}

/// The reason why the system rejects a program that passed our checks.
fn rejected(program: &Program, source: io::Error) -> ProgramError {
    let path = program.path().to_owned();
    ProgramError::Rejected { path, source }
}
