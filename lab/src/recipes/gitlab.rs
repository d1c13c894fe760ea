//! A job for GitLab.

use yaml_rust2::{Yaml, YamlLoader};

use super::Recipe;

/// What the job does before its script, in the image as root, and its script.
pub(super) fn recipe(file: &str) -> Result<Recipe, String> {
    let file = parse(file)?;
    let job = &file["rdma"];
    Ok(Recipe {
        name: "GitLab",
        as_root: lines(&job["before_script"])?,
        as_user: lines(&job["script"])?,
    })
}

/// The only document in a text.
pub(super) fn parse(text: &str) -> Result<Yaml, String> {
    let mut documents = YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
    match documents.len() {
        1 => Ok(documents.remove(0)),
        number => Err(format!("{number} documents where one should be")),
    }
}

fn lines(list: &Yaml) -> Result<String, String> {
    let lines = list.as_vec().ok_or("a script should be a list of lines")?;
    lines
        .iter()
        .map(|line| match line.as_str() {
            Some(line) => Ok(format!("{line}\n")),
            None => Err(format!("{line:?} is not a line of a script")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_script_runs_as_root_and_script_as_user() {
        let file = "rdma:\n  before_script:\n    - a\n    - b c\n  script:\n    - d \"$(e)\"\n";
        let job = recipe(file).expect("a good file");
        assert_eq!((&*job.as_root, &*job.as_user), ("a\nb c\n", "d \"$(e)\"\n"));
        assert!(recipe("rdma:\n  script: [a]\n").is_err());
        assert!(recipe("rdma: [").is_err());
    }
}
