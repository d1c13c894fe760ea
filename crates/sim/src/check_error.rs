//! The error of a failed check.

use std::fmt;

/// A failed check, described in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckError(String);

impl CheckError {
    /// A failed check with this description.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A verb failed that must succeed.
macro_rules! unexpected {
    ($($error:ty),+) => {$(
        impl From<$error> for CheckError {
            fn from(error: $error) -> Self {
                Self::new(format!("a verb failed that must succeed: {error}"))
            }
        }
    )+};
}

unexpected!(
    engine::ObjectError,
    engine::MemoryError,
    engine::ModifyError,
    engine::MulticastError,
    cm::BindError,
    cm::CallError,
    cm::TooManyIds
);
