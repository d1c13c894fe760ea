//! The Python wheel, installed from its file into a new virtual environment, and tests of pytest there.

use std::fs;
use std::path::Path;

use super::{Recipe, dockerfile};

pub(super) const NAME: &str = "pytest";

/// The test of the page, and one that fails after the same traffic.
const TEST: &str = "test_rdma.py";
const FAILING_TEST: &str = "test_that_fails.py";
const FAILING: &str = "\
import test_rdma


def test_failure(rdma):
    test_rdma.ping(rdma)
    assert False
";

/// What a user of a new environment tries first.
const FIRST_STEPS: &str = r#"/opt/venv/bin/roci demo
/opt/venv/bin/python - << 'END'
import rocinante

devices = {"left": "127.0.0.1", "right": "127.0.0.2"}
roci = str(rocinante.roci_path())
assert roci == "/opt/venv/bin/roci", roci
shown = rocinante.run([roci, "devices"], devices=devices, check=True, capture_output=True, text=True).stdout
assert "left" in shown and "right" in shown, shown
assert rocinante.run(["sh", "-c", "exit 3"]).returncode == 3
assert rocinante.environment(devices=devices)["ROCI_DEVICES"] == "left=127.0.0.1,right=127.0.0.2"
END
"#;

/// Captures are kept of a test that fails, and of no other.
const AFTERWARDS: &str = r#"test ! -e rdma-captures
if /opt/venv/bin/pytest test_that_fails.py > report.txt; then exit 1; fi
grep 'test_failure' report.txt
command=$(grep --max-count=1 '^roci explain rdma-captures/test_that_fails.py_test_failure/' report.txt)
eval "/opt/venv/bin/$command" | grep SEND
/opt/venv/bin/pytest --rdma-captures=kept -m rdma /opt/test_rdma.py
test ! -e kept
"#;

/// The image of the page, and what its user does in it.
pub(super) fn recipe(file: &str) -> Result<Recipe, String> {
    let mut recipe = dockerfile::recipe(NAME, file)?;
    recipe.as_user.insert_str(0, FIRST_STEPS);
    recipe.as_user += AFTERWARDS;
    Ok(recipe)
}

/// Puts the tests into the job's directory.
pub(super) fn prepare(job: &Path, test: &str) -> Result<(), String> {
    for (name, text) in [(TEST, test), (FAILING_TEST, FAILING)] {
        fs::write(job.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_has_the_test_of_the_page() {
        let file = format!("FROM debian\nCOPY a.whl {TEST} /opt/\nUSER u\nCMD [\"pytest\"]\n");
        let recipe = recipe(&file).expect("a good file");
        assert!(recipe.as_root.contains(TEST));
        assert!(recipe.as_user.contains("'pytest'\ntest ! -e rdma-captures"));
    }
}
