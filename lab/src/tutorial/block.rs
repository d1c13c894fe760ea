//! Blocks of commands in a page.
//!
//! What follows the three back-ticks says what a block is:
//!
//! ```text
//! sh             commands, run one after the other
//! sh server      a program that waits for another, for a terminal of its own
//! sh client      what it waits for; the server must end by itself behind it
//! sh elsewhere   commands that need something that isn't here: a second machine, a person
//! ```
//!
//! GitHub looks at the first word only, so all of them are shown as commands.

/// How a block is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockKind {
    Alone,
    Server,
    Client,
    Elsewhere,
}

/// Commands in a page.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) kind: BlockKind,
    /// Where it begins.
    pub(super) line: usize,
    pub(super) script: String,
}

/// The blocks of commands in a page, in order.
pub(super) fn blocks(page: &str) -> Result<Vec<Block>, String> {
    const FENCE: &str = "```";
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, opening)) = lines.next() {
        let Some(words) = opening.trim_start().strip_prefix(FENCE) else {
            continue;
        };
        let line = index + 1;
        let inside = lines.by_ref().map(|(_, text)| text);
        let script: Vec<_> = inside.take_while(|text| text.trim() != FENCE).collect();
        if let Some(kind) = kind_of(words).map_err(|why| format!("line {line}: {why}"))? {
            let script = script.join("\n");
            blocks.push(Block { kind, line, script });
        }
    }
    paired(&blocks)?;
    Ok(blocks)
}

fn kind_of(words: &str) -> Result<Option<BlockKind>, String> {
    let mut words = words.split_whitespace();
    if words.next() != Some("sh") {
        return Ok(None);
    }
    match words.next() {
        None => Ok(Some(BlockKind::Alone)),
        Some("server") => Ok(Some(BlockKind::Server)),
        Some("client") => Ok(Some(BlockKind::Client)),
        Some("elsewhere") => Ok(Some(BlockKind::Elsewhere)),
        Some(other) => Err(format!(
            "`sh {other}` is none of `sh`, `sh server`, `sh client`, `sh elsewhere`"
        )),
    }
}

/// A client follows each server, and no client comes alone.
fn paired(blocks: &[Block]) -> Result<(), String> {
    let mut waits = None;
    for block in blocks {
        match (waits, block.kind) {
            (None, BlockKind::Server) => waits = Some(block.line),
            (Some(_), BlockKind::Client) => waits = None,
            (Some(line), _) => return Err(format!("line {line}: no client follows the server")),
            (None, BlockKind::Client) => {
                return Err(format!("line {}: no server block is before it", block.line));
            }
            (None, BlockKind::Alone | BlockKind::Elsewhere) => {}
        }
    }
    match waits {
        Some(line) => Err(format!("line {line}: no client follows the server")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
Text.

```sh
echo one   # in English
```

```text
one
```

```sh server
serve
```

```sh client
ask
```
";

    #[test]
    fn commands_are_found_and_output_is_not() {
        let blocks = blocks(PAGE).expect("a page");
        let found: Vec<_> = blocks.iter().map(|it| (it.kind, it.line)).collect();
        let expected = [
            (BlockKind::Alone, 3),
            (BlockKind::Server, 11),
            (BlockKind::Client, 15),
        ];
        assert_eq!(found, expected);
        assert_eq!(blocks[2].script, "ask");
    }

    #[test]
    fn a_server_needs_a_client() {
        assert!(blocks("```sh server\nserve\n```\n").is_err());
        assert!(blocks("```sh client\nask\n```\n").is_err());
        assert!(blocks("```sh srever\nserve\n```\n").is_err());
    }
}
