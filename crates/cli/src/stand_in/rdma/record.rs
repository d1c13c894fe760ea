//! The output of `rdma` about one object: a line of text, or a JSON object.

use std::fmt::{self, Display, Write as _};

use super::Format;

pub(super) enum Value {
    Number(u64),
    Text(String),
    Switch(bool),
    /// In the text, a separate line.
    Names(Vec<&'static str>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

struct Field {
    name: &'static str,
    value: Value,
    in_text: bool,
}

/// The output about one object.
pub(super) struct Record {
    /// The beginning of the line of text.
    head: String,
    fields: Vec<Field>,
}

impl Record {
    pub(super) fn new(head: String) -> Self {
        let fields = Vec::new();
        Self { head, fields }
    }

    /// Adds a value to the text and the JSON.
    pub(super) fn fact(self, name: &'static str, value: impl Into<Value>) -> Self {
        self.with(name, value.into(), true)
    }

    /// Adds a value to the JSON; the text shows it elsewhere, or only with `-d`.
    pub(super) fn json(self, name: &'static str, value: impl Into<Value>) -> Self {
        self.with(name, value.into(), false)
    }

    pub(super) fn with(mut self, name: &'static str, value: Value, in_text: bool) -> Self {
        self.fields.push(Field {
            name,
            value,
            in_text,
        });
        self
    }

    fn line(&self) -> String {
        let mut line = self.head.clone();
        for field in self.fields.iter().filter(|field| field.in_text) {
            let _ = match &field.value {
                Value::Names(names) => {
                    write!(line, "\n    {}: <{}>", field.name, names.join(", "))
                }
                value => write!(line, "{} {value} ", field.name),
            };
        }
        line
    }

    fn object(&self, pretty: bool) -> String {
        let (indent, colon, end) = if pretty {
            ("\n        ", ": ", "\n    ")
        } else {
            ("", ":", "")
        };
        let fields = self.fields.iter().map(|field| {
            let value = json(&field.value, pretty);
            format!("{indent}\"{}\"{colon}{value}", field.name)
        });
        format!("{{{}{end}}}", fields.collect::<Vec<_>>().join(","))
    }
}

/// The value as text.
impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Names(names) => f.write_str(&names.join(", ")),
        }
    }
}

fn json(value: &Value, pretty: bool) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::Switch(on) => on.to_string(),
        Value::Names(names) => {
            let quoted = names.iter().map(|name| format!("\"{name}\""));
            list(&quoted.collect::<Vec<_>>(), pretty)
        }
    }
}

fn list(items: &[String], pretty: bool) -> String {
    match (items.join(","), pretty) {
        (items, true) if items.is_empty() => "[ ]".to_owned(),
        (items, true) => format!("[ {items} ]"),
        (items, false) => format!("[{items}]"),
    }
}

/// The complete output of one call.
pub(super) fn printed(records: &[Record], format: Format) -> String {
    if !format.json {
        let lines = records.iter().map(|record| record.line() + "\n");
        return lines.collect();
    }
    let objects = records.iter().map(|record| record.object(format.pretty));
    list(&objects.collect::<Vec<_>>(), format.pretty) + "\n"
}
