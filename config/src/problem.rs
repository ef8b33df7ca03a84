//! What is wrong with a text that an operator wrote: all of it at once, each with its place.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1, where it can be told.
    pub line: Option<usize>,
    /// Path of the key, as in `ports[1].rate`; empty for the document as a whole.
    pub key: String,
    /// The offending value and what is allowed.
    pub message: String,
}

/// Everything that is wrong with a file. Shown as one line per problem, `FILE:LINE: KEY: MESSAGE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// The file's name.
    pub file: String,
    /// At least one, in the order of their lines.
    pub problems: Vec<Problem>,
    /// Problems beyond the ones listed.
    pub omitted: usize,
}

impl ConfigErrors {
    /// A single problem.
    pub(crate) fn one(file: &str, line: Option<usize>, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), problems: vec![Problem { line, key: String::new(), message: message.into() }], omitted: 0 }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{}", self.file)?;
            if let Some(line) = problem.line {
                write!(f, ":{line}")?;
            }
            let colon = if problem.key.is_empty() { "" } else { ": " };
            write!(f, "{colon}{}: {}", problem.key, problem.message)?;
        }
        match self.omitted {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more", self.file),
        }
    }
}

/// Longest quotation in a message, in characters.
const MAX_QUOTED: usize = 80;

/// Foreign text for a message: in quotes, short, and harmless to a terminal.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", harmless(text, MAX_QUOTED))
}

/// At most `most` characters of foreign text, harmless to a terminal.
pub(crate) fn harmless(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).flat_map(escape_control).collect();
    if text.chars().nth(most).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A character, or an escape in place of what a terminal might obey or hide.
fn escape_control(letter: char) -> impl Iterator<Item = char> {
    let plain = matches!(letter, '"' | '\'' | '\\').then_some(letter);
    plain.into_iter().chain(letter.escape_debug().filter(move |_| plain.is_none()))
}
