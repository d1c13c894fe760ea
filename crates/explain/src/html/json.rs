//! JSON inside HTML.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Writes JSON for an HTML element: no text in it can end the element or start another.
pub(super) fn write(value: &impl Serialize, to: &mut impl Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(to, InsideHtml);
    value.serialize(&mut serializer).map_err(io::Error::from)
}

struct InsideHtml;

impl Formatter for InsideHtml {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut pieces = fragment.split('<');
        to.write_all(pieces.next().unwrap_or_default().as_bytes())?;
        for piece in pieces {
            to.write_all(br"\u003c")?;
            to.write_all(piece.as_bytes())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_close_the_script_element() {
        let text = "a </script><!-- <script>b";
        let mut written = Vec::new();
        write(&[text], &mut written).expect("memory takes everything");
        assert!(!written.contains(&b'<'));
        let read: Vec<String> = serde_json::from_slice(&written).expect("it is JSON");
        assert_eq!(read, [text]);
    }
}
