//! The `Dockerfile`: as much of its language as the recipe needs.

use super::Recipe;
use super::gitlab::parse;

/// What building the image does as root, and what running it does.
pub(super) fn recipe(name: &'static str, file: &str) -> Result<Recipe, String> {
    let mut recipe = Recipe {
        name,
        as_root: String::new(),
        as_user: String::new(),
    };
    let mut is_root = true;
    let mut entry_point = String::new();
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
            "ADD" => *half += &unpack(rest)?,
            "RUN" => *half += &format!("{rest}\n"),
            "USER" => is_root = false,
            "ENTRYPOINT" => entry_point = format!("{} ", command(rest)?),
            "CMD" => recipe.as_user += &format!("{entry_point}{}\n", command(rest)?),
            _ => return Err(format!("the Dockerfile says `{word}`, which we don't know")),
        }
    }
    Ok(recipe)
}

/// An archive is unpacked into the directory, which is made.
fn unpack(words: &str) -> Result<String, String> {
    let (archive, directory) = words.split_once(' ').ok_or("ADD wants two words")?;
    let archives = archive.ends_with(".tar.gz").then_some(archive);
    let archive = archives.ok_or("we can ADD archives only")?;
    Ok(format!(
        "mkdir -p {directory}\ntar --extract --file {archive} --directory {directory}\n"
    ))
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
        let recipe = recipe("test", file).expect("a good file");
        assert_eq!(recipe.as_root, "cp a /b\nc && d\n");
        assert_eq!(recipe.as_user, "'f' 'g h'\n");
        assert!(super::recipe("test", "EXPOSE 80\n").is_err());
    }

    #[test]
    fn an_entry_point_precedes_the_command() {
        let file = "FROM debian\nADD a.tar.gz /b\nENTRYPOINT [\"c\", \"--\"]\nCMD [\"d\"]\n";
        let recipe = recipe("test", file).expect("a good file");
        let unpacked = "mkdir -p /b\ntar --extract --file a.tar.gz --directory /b\n";
        assert_eq!(recipe.as_root, unpacked);
        assert_eq!(recipe.as_user, "'c' '--' 'd'\n");
        assert!(super::recipe("test", "ADD a.txt /b\n").is_err());
    }
}
