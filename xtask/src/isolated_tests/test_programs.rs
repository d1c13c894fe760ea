//! The test programs that cargo builds.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use xtask::command::CommandLine;

/// A program with tests.
#[derive(Debug, PartialEq)]
pub(super) struct TestProgram {
    pub(super) package: String,
    /// The crate: `lib` tests have the name of the library, others of their file.
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// The directory of the package, in which cargo runs its tests.
    pub(super) directory: PathBuf,
    /// Where to find the libraries that it was linked with.
    pub(super) library_path: String,
}

/// Builds the selected test programs.
pub(super) fn build(root: &Path, selection: &str) -> Result<Vec<TestProgram>, String> {
    let command = CommandLine::cargo("test --no-run").arguments_of(selection);
    println!("$ {command}");
    let output = Command::new("cargo")
        .args(command.words())
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("`{command}` can't be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{command}` failed"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let standard_library = standard_library()?;
    let programs = messages
        .lines()
        .filter_map(|line| program(line, &standard_library));
    Ok(programs.collect())
}

/// The test program that a message of cargo names, if it names one.
fn program(message: &str, standard_library: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let file = PathBuf::from(message["executable"].as_str()?);
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let dependencies = file.parent()?.display().to_string();
    let built = file.parent()?.parent()?.display().to_string();
    Some(TestProgram {
        package: package(message["package_id"].as_str()?),
        name: message["target"]["name"].as_str()?.to_owned(),
        directory: manifest.parent()?.to_owned(),
        library_path: [&built, &dependencies, standard_library].join(":"),
        file,
    })
}

/// The name in `path+file:///project/crates/net#rocinante-net@0.1.0`, or of the directory where cargo leaves it out.
fn package(id: &str) -> String {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

fn standard_library() -> Result<String, String> {
    let failed = |error| format!("`rustc --print` failed: {error}");
    let mut command = Command::new("rustc");
    let output = command.args(["--print", "target-libdir"]).output();
    let output = output.map_err(failed)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///p/crates/net#rocinante-net@0.1.0",
        "manifest_path":"/p/crates/net/Cargo.toml","target":{"name":"socket"},"profile":{"test":true},
        "executable":"/p/target/debug/deps/socket-0123"}"#;

    #[test]
    fn test_program_is_read_from_the_message_of_cargo() {
        let expected = TestProgram {
            package: "rocinante-net".into(),
            name: "socket".into(),
            file: "/p/target/debug/deps/socket-0123".into(),
            directory: "/p/crates/net".into(),
            library_path: "/p/target/debug:/p/target/debug/deps:/rust/lib".into(),
        };
        assert_eq!(program(MESSAGE, "/rust/lib"), Some(expected));
    }

    #[test]
    fn library_is_no_test_program() {
        let library = MESSAGE.replace("true", "false");
        assert_eq!(program(&library, "/rust/lib"), None);
    }

    #[test]
    fn package_is_named_like_its_directory_where_cargo_says_nothing_else() {
        assert_eq!(package("path+file:///p/xtask#0.1.0"), "xtask");
    }
}
