//! What an emulated machine printed about its checks.

/// Something that the machine does.
pub(super) struct Check {
    pub(super) name: String,
    /// For a shell.
    pub(super) command: String,
    /// What must be in its output.
    pub(super) expected: &'static str,
}

impl Check {
    pub(super) fn new(name: &str, command: &str, expected: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            command: command.to_owned(),
            expected,
        }
    }

    /// The line by which the machine's first process runs it.
    pub(super) fn line(&self) -> String {
        format!("check '{}' '{}'\n", self.name, self.command)
    }

    /// Fails with its output unless it ended well and printed what it must.
    pub(super) fn judge(&self, console: &str) -> Result<(), String> {
        let name = &self.name;
        let (_, rest) = console
            .split_once(&format!("=== {name}\n"))
            .ok_or_else(|| format!("{name}: it was not reached"))?;
        let (output, rest) = rest
            .split_once("=== exit ")
            .ok_or_else(|| format!("{name}: it did not end\n{rest}"))?;
        let code = rest.lines().next().unwrap_or_default();
        if code != format!("0 of {name}") {
            return Err(format!("{name}: exit {code}\n{output}"));
        }
        if !output.contains(self.expected) {
            return Err(format!("{name}: no `{}`\n{output}", self.expected));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_judged_by_its_exit_code_and_its_output() {
        let check = Check::new("demo", "roci demo", "correct");
        let console = "boot\n=== first\n=== exit 0 of first\n=== demo\ncorrect\n";
        let judged = |end: &str| check.judge(&format!("{console}{end}"));
        assert_eq!(judged("=== exit 0 of demo\n"), Ok(()));
        assert!(judged("=== exit 1 of demo\n").is_err_and(|it| it.contains("exit 1")));
        assert!(judged("").is_err_and(|it| it.contains("did not end")));
        let silent = console.replace("correct", "wrong") + "=== exit 0 of demo\n";
        assert!(check.judge(&silent).is_err_and(|it| it.contains("wrong")));
        let missing = check.judge("=== first\n=== exit 0 of first\n");
        assert!(missing.is_err_and(|it| it.contains("not reached")));
    }

    #[test]
    fn the_name_and_the_command_are_two_words() {
        let check = Check::new("two words", "a b", "");
        assert_eq!(check.line(), "check 'two words' 'a b'\n");
    }
}
