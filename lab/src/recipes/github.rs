//! A workflow for GitHub, and our action in it.

use std::collections::BTreeMap;

use yaml_rust2::Yaml;

use super::Recipe;
use super::gitlab::parse;

pub(super) const NAME: &str = "GitHub";

/// A release as the action would find it, in a directory instead of on a server.
const REPOSITORY: &str = "owner/rocinante";

/// What GitHub gives every step, the runner's directory and its files first.
const RUNNER: &str = "\
export RUNNER_TEMP=$PWD/runner GITHUB_SERVER_URL=file://$PWD/server
export GITHUB_ENV=$RUNNER_TEMP/env GITHUB_PATH=$RUNNER_TEMP/path GITHUB_OUTPUT=$RUNNER_TEMP/output
mkdir -p $RUNNER_TEMP
touch $GITHUB_ENV $GITHUB_PATH $GITHUB_OUTPUT
";

/// What GitHub does between two steps.
const NEXT_STEP: &str = "\
set -a; . \"$GITHUB_ENV\"; set +a
export PATH=\"$(paste -s -d : \"$GITHUB_PATH\"):$PATH\"
";

/// What GitHub's machines have, and a bare system has not.
const TOOLS: &str =
    "command -v curl > /dev/null || apt-get install --yes --no-install-recommends curl\n";

/// What the workflow does; what it does by `sudo` comes first.
pub(super) fn recipe(workflow: &str, action: &str) -> Result<Recipe, String> {
    let (workflow, action) = (parse(workflow)?, parse(action)?);
    let steps = list(&workflow["jobs"]["rdma"]["steps"])?;
    let mut as_root = release();
    let mut as_user = RUNNER.to_owned();
    for step in steps {
        match (step["uses"].as_str(), step["run"].as_str()) {
            (Some(name), None) if name.starts_with("actions/checkout@") => {}
            (Some(name), None) if name.starts_with("OWNER/rocinante@") => {
                as_user += &action_steps(&action, &inputs(&action)?)?;
            }
            (None, Some(line)) => match line.strip_prefix("sudo ") {
                Some(line) => as_root += &format!("{line}\n"),
                None => as_user += &format!("{line}\n"),
            },
            _ => return Err(format!("we don't know what to do for {step:?}")),
        }
    }
    as_root += TOOLS;
    Ok(Recipe {
        name: NAME,
        as_root,
        as_user,
    })
}

/// Puts the archive where a release would have it.
fn release() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let directory = format!("server/{REPOSITORY}/releases/download/v{version}");
    format!("mkdir -p {directory}\ncp rocinante-*-linux.tar.gz {directory}\nchmod -R a+rX server\n")
}

/// The defaults, but a release: there is no compiler in the fresh system.
fn inputs(action: &Yaml) -> Result<BTreeMap<String, String>, String> {
    let declared = action["inputs"].as_hash().ok_or("an action has inputs")?;
    let defaults = declared.iter().map(|(name, input)| {
        let described = input["description"].as_str().is_some();
        match (name.as_str(), input["default"].as_str()) {
            (Some(name), Some(default)) if described => Ok((name.to_owned(), default.to_owned())),
            _ => Err(format!(
                "the input {name:?} lacks a description or a default"
            )),
        }
    });
    let mut inputs = defaults.collect::<Result<BTreeMap<_, _>, String>>()?;
    inputs.insert("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Ok(inputs)
}

fn action_steps(action: &Yaml, inputs: &BTreeMap<String, String>) -> Result<String, String> {
    if action["runs"]["using"].as_str() != Some("composite") {
        return Err("the action should be a composite one".into());
    }
    let mut script = String::new();
    for step in list(&action["runs"]["steps"])? {
        if !step["if"].is_badvalue() && !holds(text(&step["if"])?, inputs)? {
            continue;
        }
        script += &step_script(step, inputs)?;
        script += NEXT_STEP;
    }
    Ok(script)
}

/// In a shell of its own, as GitHub starts it.
fn step_script(step: &Yaml, inputs: &BTreeMap<String, String>) -> Result<String, String> {
    if step["shell"].as_str() != Some("bash") {
        return Err(format!("a step of an action needs `shell: bash`: {step:?}"));
    }
    let mut script = "(\nset -eo pipefail\n".to_owned();
    for (name, value) in step["env"].as_hash().into_iter().flatten() {
        let value = filled_in(text(value)?, inputs)?;
        script += &format!("export {}='{value}'\n", text(name)?);
    }
    Ok(script + text(&step["run"])?.trim_end() + "\n)\n")
}

/// A condition that compares an input.
fn holds(condition: &str, inputs: &BTreeMap<String, String>) -> Result<bool, String> {
    let words: Vec<_> = condition.split(' ').collect();
    let [input, relation @ ("==" | "!="), value] = words[..] else {
        return Err(format!("we can't decide whether `{condition}`"));
    };
    let equal = self::input(input, inputs)? == value.trim_matches('\'');
    Ok(equal == (relation == "=="))
}

/// Puts values in the place of expressions.
fn filled_in(text: &str, inputs: &BTreeMap<String, String>) -> Result<String, String> {
    let Some((before, rest)) = text.split_once("${{ ") else {
        return Ok(text.to_owned());
    };
    let (expression, after) = rest.split_once(" }}").ok_or("an expression has an end")?;
    let value = match expression {
        "github.action_repository" => REPOSITORY,
        _ => input(expression, inputs)?,
    };
    Ok(format!("{before}{value}{}", filled_in(after, inputs)?))
}

fn input<'a>(name: &str, inputs: &'a BTreeMap<String, String>) -> Result<&'a str, String> {
    let value = name
        .strip_prefix("inputs.")
        .and_then(|name| inputs.get(name));
    value
        .map(String::as_str)
        .ok_or_else(|| format!("there is no {name}"))
}

fn list(yaml: &Yaml) -> Result<&Vec<Yaml>, String> {
    yaml.as_vec().ok_or_else(|| format!("{yaml:?} is no list"))
}

fn text(yaml: &Yaml) -> Result<&str, String> {
    yaml.as_str().ok_or_else(|| format!("{yaml:?} is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action() -> Yaml {
        parse(include_str!("../../../action.yml")).expect("an action")
    }

    #[test]
    fn conditions_compare_inputs() {
        let inputs = inputs(&action()).expect("inputs");
        assert_eq!(holds("inputs.version != 'source'", &inputs), Ok(true));
        assert_eq!(holds("inputs.version == 'source'", &inputs), Ok(false));
        assert!(holds("always()", &inputs).is_err());
        assert!(holds("inputs.colour == 'red'", &inputs).is_err());
    }

    #[test]
    fn expressions_are_filled_in() {
        let inputs = inputs(&action()).expect("inputs");
        let filled = filled_in(
            "v${{ inputs.version }} of ${{ github.action_repository }}",
            &inputs,
        );
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(filled, Ok(format!("v{version} of {REPOSITORY}")));
        assert!(filled_in("${{ secrets.key }}", &inputs).is_err());
    }
}
