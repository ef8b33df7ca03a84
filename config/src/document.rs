//! YAML text to a tree of numbered nodes, within bounds.
//!
//! The YAML library gives positions only with its errors. So nodes are numbered in the order of the document, and the line of a node is
//! found when it is needed: the text is read once more and the reading made to fail at that number.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, Visitor};

use crate::defaults::MAX_FILE;
use crate::problem::{ConfigErrors, harmless, quoted};

/// Most keys and values in a document, copies by aliases included.
const MAX_NODES: usize = 400_000;
/// Most bytes of text in a document, copies by aliases included. Escapes can make a text up to half longer than the file has it.
const MAX_TEXT: usize = 2 * MAX_FILE;
/// Most opening brackets: far above any real file, and if all are nested still below a second of the library's time.
const MAX_BRACKETS: usize = 10_000;

/// Longest message of the YAML library that is passed on, in characters: it may quote the text.
const MAX_MESSAGE: usize = 300;

/// A value of the document.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its number.
    pub id: usize,
    /// What it is.
    pub value: Value,
}

/// What a node is.
#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value. Duplicate keys are kept.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The number of the key.
    pub id: usize,
    pub key: String,
    pub node: Node,
}

impl Node {
    /// The value for people: short, and harmless to a terminal.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Integer(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(text) => quoted(text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a group of keys".to_owned(),
        }
    }
}

/// Reads a document.
pub(crate) fn parse(text: &str, file: &str) -> Result<Node, ConfigErrors> {
    if text.len() > MAX_FILE {
        let message = format!("the file has {} bytes; at most {MAX_FILE} are allowed", text.len());
        return Err(ConfigErrors::one(file, None, message));
    }
    if let Some((line, message)) = too_slow(text) {
        return Err(ConfigErrors::one(file, Some(line), message));
    }
    build(text, usize::MAX).map_err(|error| {
        let line = error.location().map(|location| location.line());
        ConfigErrors::one(file, line, plain_message(&error))
    })
}

/// The line of a node or key of a document that [`parse`] has read.
pub(crate) fn line_of(text: &str, id: usize) -> Option<usize> {
    build(text, id).err()?.location().map(|location| location.line())
}

/// The library's message without the position at its end, which has its own place.
fn plain_message(error: &serde_yaml::Error) -> String {
    let message = error.to_string();
    let end = message.rfind(" at line ").unwrap_or(message.len());
    harmless(&message[..end], MAX_MESSAGE)
}

/// What would make the YAML library take time that grows with the square of the text, with its line: it walks over all open brackets for
/// every token and over all %TAG directives for every new one. Brackets in texts and closed ones count too, so that nothing can hide.
fn too_slow(text: &str) -> Option<(usize, String)> {
    let mut brackets = 0_usize;
    for (line, content) in (1..).zip(text.lines()) {
        brackets += content.bytes().filter(|byte| b"[{".contains(byte)).count();
        if brackets > MAX_BRACKETS {
            return Some((line, format!("more than {MAX_BRACKETS} brackets; write lists and groups on lines of their own")));
        }
        if content.starts_with('%') {
            return Some((line, "directives (lines that start with %) are not supported; remove it".to_owned()));
        }
    }
    None
}

fn build(text: &str, stop_at: usize) -> Result<Node, serde_yaml::Error> {
    let budget = Budget { next: Cell::new(0), text: Cell::new(0), stop_at };
    Builder(&budget).deserialize(serde_yaml::Deserializer::from_str(text))
}

/// Gives numbers to nodes and ends the reading where it has to end.
struct Budget {
    next: Cell<usize>,
    text: Cell<usize>,
    stop_at: usize,
}

impl Budget {
    fn number<E: de::Error>(&self) -> Result<usize, E> {
        let id = self.next.replace(self.next.get() + 1);
        if id == self.stop_at {
            return Err(E::custom("found"));
        }
        if id >= MAX_NODES {
            return Err(E::custom(format_args!("more than {MAX_NODES} values (aliases count as often as they are used)")));
        }
        Ok(id)
    }

    fn text<E: de::Error>(&self, text: &str) -> Result<String, E> {
        self.text.set(self.text.get() + text.len());
        if self.text.get() > MAX_TEXT {
            return Err(E::custom(format_args!("more than {MAX_TEXT} bytes of text (aliases count as often as they are used)")));
        }
        Ok(text.to_owned())
    }
}

/// Builds a [`Node`].
#[derive(Clone, Copy)]
struct Builder<'a>(&'a Budget);

impl Builder<'_> {
    fn node<E: de::Error>(self, value: Value) -> Result<Node, E> {
        Ok(Node { id: self.0.number()?, value })
    }
}

impl<'de> DeserializeSeed<'de> for Builder<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Builder<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value, a list or a group of keys")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        self.node(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        self.node(Value::Integer(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        self.node(Value::Integer(value.into()))
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Node, E> {
        self.node(Value::Integer(value))
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Node, E> {
        self.node(Value::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        self.node(Value::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        let id = self.0.number()?;
        Ok(Node { id, value: Value::Text(self.0.text(value)?) })
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        self.node(Value::Null)
    }

    /// An empty document.
    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        self.node(Value::Null)
    }

    /// A value with a tag.
    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Node, A::Error> {
        Err(de::Error::custom("tags (words that start with !) are not supported; remove it"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let id = self.0.number()?;
        let mut list = Vec::new();
        while let Some(node) = items.next_element_seed(self)? {
            list.push(node);
        }
        Ok(Node { id, value: Value::List(list) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let id = self.0.number()?;
        let mut map = Vec::new();
        while let Some((id, key)) = entries.next_key_seed(KeyBuilder(self.0))? {
            map.push(Entry { id, key, node: entries.next_value_seed(self)? });
        }
        Ok(Node { id, value: Value::Map(map) })
    }
}

/// Builds a key: any plain value, as it is written.
struct KeyBuilder<'a>(&'a Budget);

impl<'de> DeserializeSeed<'de> for KeyBuilder<'_> {
    type Value = (usize, String);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(usize, String), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyBuilder<'_> {
    type Value = (usize, String);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<(usize, String), E> {
        let id = self.0.number()?;
        Ok((id, self.0.text(key)?))
    }
}

#[cfg(test)]
mod tests;
