//! C programs with a mistake, and their corrected versions, under `ROCI_CHECK`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support;

/// The rules that a program violates, its exit status, and all it said.
fn check(name: &str, kind: &str) -> (BTreeSet<String>, Option<i32>, String) {
    let libraries = support::library_directory(&format!("checked-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/checked/mistakes.c");
    let program = libraries.join(name);
    support::compile(&source, &program, Some(&libraries));
    let number = MISTAKES.iter().position(|(known, _)| *known == name);
    let number = number.expect("a program of this name") + 1;
    let output = Command::new("timeout")
        .arg("60")
        .arg(&program)
        .args([name, kind])
        .env("LD_LIBRARY_PATH", &libraries)
        .env(
            "ROCI_DEVICES",
            format!("left=127.32.{number}.1,right=127.32.{number}.2"),
        )
        .env("ROCI_CHECK", "fail")
        .output()
        .expect("timeout is everywhere");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let rules = said.lines().filter_map(|line| {
        // A finding, or an error in the list at the end.
        let told = line.strip_prefix("roci: check: ");
        let told = told.or_else(|| line.strip_prefix("    error: "))?;
        let (rule, rest) = told.split_once(": ")?;
        (!rest.is_empty()).then(|| rule.to_owned())
    });
    (rules.collect(), output.status.code(), said)
}

/// The rules that do not change the exit status.
const NOTES: [&str; 5] = [
    "receive-changed",
    "shared-target",
    "event-not-fetched",
    "memory-unmapped",
    "leak",
];

fn finds(name: &str) {
    if !support::can_compile() {
        return;
    }
    let rule = MISTAKES.iter().find(|(known, _)| *known == name);
    let rule = rule.expect("a program of this name").1;
    let (mut rules, status, said) = check(name, "wrong");
    if rule == "remote-race" {
        // Both ends are in one process. The target may notice the same race.
        rules.remove("target-race");
    }
    if rule == "region-in-use" {
        // A request that finds its memory gone fails, and its failure is explained.
        rules.remove("explained");
    }
    assert_eq!(rules, BTreeSet::from([rule.to_owned()]), "{said}");
    let is_note = NOTES.contains(&rule);
    assert_eq!(status, Some(if is_note { 0 } else { 66 }), "{said}");
    // An event comes from a peer, and what is explained has no stack. The stack of a forgotten object names the functions of the
    // suite.
    if !["leak", "event-not-fetched", "explained"].contains(&rule) {
        assert!(
            said.contains(&format!("{name} at ")),
            "the stack names the function: {said}"
        );
    }
    let (rules, status, said) = check(name, "right");
    assert_eq!((rules.len(), status), (0, Some(0)), "{said}");
}

macro_rules! finds {
    ($($name:ident: $rule:literal;)+) => {
        const MISTAKES: &[(&str, &str)] = &[$((stringify!($name), $rule)),+];

        $(
            #[test]
            fn $name() {
                finds(stringify!($name));
            }
        )+
    };
}

finds! {
    change_message: "buffer-changed";
    change_at_once: "buffer-changed";
    reuse_message: "buffer-changed";
    read_into_message: "overlapping-requests";
    share_receives: "shared-target";
    change_receive: "receive-changed";
    write_twice: "remote-race";
    write_and_add: "remote-race";
    read_then_write: "missing-fence";
    never_signal: "never-signaled";
    destroy_early: "destroyed-with-sends";
    deregister_early: "key-after-deregistration";
    free_early: "memory-unmapped";
    protect_early: "memory-unmapped";
    replace_early: "memory-unmapped";
    give_back_early: "memory-unmapped";
    deregister_at_once: "region-in-use";
    move_early: "key-after-deregistration";
    move_at_once: "region-in-use";
    write_by_two_keys: "remote-race";
    forget_completions: "send-queue-not-polled";
    ignore_event: "event-not-fetched";
    use_wrong_key: "explained";
    forget_objects: "leak";
    forget_domain: "leak";
}
