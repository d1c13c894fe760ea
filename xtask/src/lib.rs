//! What the project's own commands share: `xtask` itself, and the laboratory (`lab`).

#![forbid(unsafe_code)]

pub mod command;
pub mod debian;
pub mod install;
pub mod laboratory;
pub mod linker;
pub mod project;
pub mod scratch;
pub mod steps;

use std::path::Path;
use std::process::ExitCode;

/// Commands run here whatever directory they were called from, and findings name paths from here.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a directory of the workspace")
}

/// How a program ends; it prints an error before.
pub fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(rejection) => {
            eprintln!("{rejection}");
            ExitCode::FAILURE
        }
    }
}
