//! The `Dockerfile`: as much of its language as the recipe needs.

use super::Recipe;
use super::gitlab::parse;

/// What building the image does as root, and what running it does.
pub(super) fn recipe(file: &str) -> Result<Recipe, String> {
    let mut recipe = Recipe {
        name: "container",
        as_root: String::new(),
        as_user: String::new(),
    };
    let mut is_root = true;
    for line in file.lines().filter(|line| !line.is_empty()) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let half = if is_root {
            &mut recipe.as_root
        } else {
            &mut recipe.as_user
        };
        match word {
            "FROM" => {}
            "COPY" => *half += &format!("cp {rest}\n"),
            "RUN" => *half += &format!("{rest}\n"),
            "USER" => is_root = false,
            "CMD" => *half += &format!("{}\n", command(rest)?),
            _ => return Err(format!("the Dockerfile says `{word}`, which we don't know")),
        }
    }
    Ok(recipe)
}

/// A list of words, each in quotes for a shell.
fn command(list: &str) -> Result<String, String> {
    let list = parse(list)?;
    let words = list.as_vec().ok_or("CMD wants a list of words")?;
    let words = words.iter().filter_map(|word| word.as_str());
    let quoted: Vec<_> = words.map(|word| format!("'{word}'")).collect();
    Ok(quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_at_the_user_line() {
        let file = "FROM debian\nCOPY a /b\nRUN c && d\nUSER e\nCMD [\"f\", \"g h\"]\n";
        let recipe = recipe(file).expect("a good file");
        assert_eq!(recipe.as_root, "cp a /b\nc && d\n");
        assert_eq!(recipe.as_user, "'f' 'g h'\n");
        assert!(super::recipe("EXPOSE 80\n").is_err());
    }
}
