//! Reading a group of keys and collecting everything that is wrong with it.
//!
//! A reader asks a [`Section`] for each key that it knows, with a default and a parser; mistakes are noted, never returned, so that one
//! reading finds all of them. `finish` then reports the keys that nobody asked for.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::defaults::MAX_NAME;
use crate::document::{self, Entry, Node, Value};
use crate::problem::{ConfigErrors, Problem, harmless};

/// Problems listed with their lines; the rest is only counted. Each costs another reading of the text.
const MAX_PROBLEMS: usize = 25;

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Found>>);

#[derive(Debug)]
struct Found {
    node: usize,
    key: String,
    message: String,
}

impl Problems {
    /// Notes a mistake at a numbered node or key of the document.
    pub(crate) fn add(&self, node: usize, key: impl Into<String>, message: impl Into<String>) {
        self.0.borrow_mut().push(Found { node, key: key.into(), message: message.into() });
    }

    /// `Ok` if there are none; else all of them, in the order of the document.
    fn conclude(self, text: &str, file: &str) -> Result<(), ConfigErrors> {
        let mut found = self.0.into_inner();
        if found.is_empty() {
            return Ok(());
        }
        found.sort_by_key(|problem| problem.node);
        let omitted = found.len().saturating_sub(MAX_PROBLEMS);
        found.truncate(MAX_PROBLEMS);
        let located = |problem: Found| Problem { line: document::line_of(text, problem.node), key: problem.key, message: problem.message };
        Err(ConfigErrors { file: file.to_owned(), problems: found.into_iter().map(located).collect(), omitted })
    }
}

/// Reads a document whose top is a group of keys. `decode` may note problems; its value counts only if there are none.
pub(crate) fn read_document<T>(text: &str, file: &str, decode: impl FnOnce(Section<'_>) -> T) -> Result<T, ConfigErrors> {
    let root = document::parse(text, file)?;
    let problems = Problems::default();
    let value = decode(Section::open(&root, String::new(), &problems));
    problems.conclude(text, file)?;
    Ok(value)
}

/// A group of keys.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    path: String,
    node: usize,
    entries: &'a [Entry],
    /// The document has something else in this place; what is missing is not worth telling.
    misplaced: bool,
    asked: RefCell<BTreeSet<&'static str>>,
    problems: &'a Problems,
}

/// An item of a list.
#[derive(Debug)]
pub(crate) struct Item<'a> {
    /// Its path, as in `ports[1]`.
    pub path: String,
    /// Its value.
    pub node: &'a Node,
}

impl<'a> Section<'a> {
    /// The group of keys that `node` is. Nothing at all counts as an empty group.
    pub(crate) fn open(node: &'a Node, path: String, problems: &'a Problems) -> Self {
        let (entries, misplaced) = match &node.value {
            Value::Map(entries) => (entries.as_slice(), false),
            Value::Null => (&[][..], false),
            _ => (&[][..], true),
        };
        if misplaced {
            problems.add(node.id, path.as_str(), format!("expected a group of keys, found {}", node.shown()));
        }
        let section = Self { path, node: node.id, entries, misplaced, asked: RefCell::default(), problems };
        section.report_duplicates();
        section
    }

    fn report_duplicates(&self) {
        let mut seen = BTreeSet::new();
        for entry in self.entries.iter().filter(|entry| !seen.insert(entry.key.as_str())) {
            self.problems.add(entry.id, self.path_of(&entry.key), "the key is given twice; remove one of them");
        }
    }

    /// The path of a key in this group.
    pub(crate) fn path_of(&self, key: &str) -> String {
        let shown = harmless(key, MAX_NAME);
        if self.path.is_empty() { shown } else { format!("{}.{shown}", self.path) }
    }

    fn find(&self, key: &'static str) -> Option<&'a Entry> {
        self.asked.borrow_mut().insert(key);
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// True if the file has this key.
    pub(crate) fn has(&self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// The value of a key, or `default` if it is absent. What `parse` refuses is noted, and counts as absent.
    pub(crate) fn read<T>(&self, key: &'static str, default: T, parse: impl FnOnce(&Node) -> Result<T, String>) -> T {
        let Some(entry) = self.find(key) else { return default };
        match &entry.node.value {
            Value::Null => self.complain(key, "has no value; write one or remove the key"),
            _ => match parse(&entry.node) {
                Ok(value) => return value,
                Err(message) => self.complain(key, message),
            },
        }
        default
    }

    /// The value of a key that must be there.
    pub(crate) fn require<T>(&self, key: &'static str, substitute: T, parse: impl FnOnce(&Node) -> Result<T, String>) -> T {
        if !self.has(key) && !self.misplaced {
            self.complain(key, "is missing");
        }
        self.read(key, substitute, parse)
    }

    /// The group of keys under a key; an empty one if the key is absent.
    pub(crate) fn section(&self, key: &'static str) -> Self {
        let path = self.path_of(key);
        match self.find(key) {
            Some(entry) => Self::open(&entry.node, path, self.problems),
            None => {
                Self { path, node: self.node, entries: &[], misplaced: self.misplaced, asked: RefCell::default(), problems: self.problems }
            }
        }
    }

    /// The group of keys under a key, an empty one if the key is absent; `None` if the file says `off` instead.
    pub(crate) fn section_or_off(&self, key: &'static str) -> Option<Self> {
        let off = matches!(self.find(key).map(|entry| &entry.node.value), Some(Value::Text(text)) if text == "off");
        (!off).then(|| self.section(key))
    }

    /// The items of the list under a key, at least one. `example` is what an item looks like.
    pub(crate) fn require_list(&self, key: &'static str, example: &str) -> Vec<Item<'a>> {
        let entry = self.find(key);
        let items = match entry.map(|entry| &entry.node.value) {
            Some(Value::List(nodes)) => nodes.as_slice(),
            None | Some(Value::Null) => &[],
            Some(_) => {
                let found = entry.map(|entry| entry.node.shown()).unwrap_or_default();
                self.complain(key, format!("expected a list, found {found}"));
                return Vec::new();
            }
        };
        if items.is_empty() && !self.misplaced {
            self.complain(key, format!("at least one is needed, as in {example}"));
        }
        let path = self.path_of(key);
        items.iter().enumerate().map(|(index, node)| Item { path: format!("{path}[{index}]"), node }).collect()
    }

    /// The group of keys that an item of a list is.
    pub(crate) fn item(&self, item: &Item<'a>) -> Self {
        Self::open(item.node, item.path.clone(), self.problems)
    }

    /// All keys, for groups whose keys the operator chooses. Such a group needs no `finish`.
    pub(crate) fn entries(&self) -> &'a [Entry] {
        self.entries
    }

    /// Notes a mistake at a key, here or below (`applications.socket`); its line is that of the deepest part that the file has.
    pub(crate) fn complain(&self, key: &str, message: impl Into<String>) {
        let deepest = self.entries_along(key).last().map_or(self.node, |entry| entry.node.id);
        self.problems.add(deepest, self.path_of(key), message);
    }

    /// Notes that two keys, here or below, have the same value; at `key`, unless it is a default and `other` is not.
    pub(crate) fn complain_same(&self, key: &str, other: &str, value: &str) {
        let given = |key: &str| self.entries_along(key).count() == key.split('.').count();
        let (key, other) = if !given(key) && given(other) { (other, key) } else { (key, other) };
        self.complain(key, format!("{value} is also {other}; each needs its own"));
    }

    /// What the file has of the way to a key.
    fn entries_along(&self, key: &str) -> impl Iterator<Item = &'a Entry> {
        let mut entries = self.entries;
        let steps = key.split('.').map(move |part| {
            let entry = entries.iter().find(|entry| entry.key == part)?;
            entries = if let Value::Map(below) = &entry.node.value { below } else { &[] };
            Some(entry)
        });
        steps.map_while(|entry| entry)
    }

    /// Notes a mistake at one of [`Section::entries`].
    pub(crate) fn complain_entry(&self, entry: &Entry, message: impl Into<String>) {
        self.problems.add(entry.node.id, self.path_of(&entry.key), message);
    }

    /// The group of keys that the value of one of [`Section::entries`] is.
    pub(crate) fn below(&self, entry: &'a Entry) -> Self {
        Self::open(&entry.node, self.path_of(&entry.key), self.problems)
    }

    /// Notes a mistake at an item of a list.
    pub(crate) fn complain_item(&self, item: &Item<'_>, message: impl Into<String>) {
        self.problems.add(item.node.id, item.path.as_str(), message);
    }

    /// Notes every key that nobody asked for.
    pub(crate) fn finish(self) {
        let asked = self.asked.borrow();
        for entry in self.entries.iter().filter(|entry| !asked.contains(entry.key.as_str())) {
            self.problems.add(entry.id, self.path_of(&entry.key), unknown_key(&entry.key, &asked));
        }
    }
}

fn unknown_key(key: &str, known: &BTreeSet<&'static str>) -> String {
    match closest(key, known.iter().copied()) {
        Some(close) => format!("unknown key; did you mean {close}?"),
        None => format!("unknown key; known here: {}", known.iter().copied().collect::<Vec<_>>().join(", ")),
    }
}

/// The candidate that differs by at most a third of its letters, if there is one.
pub(crate) fn closest<'k>(word: &str, candidates: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    // Far longer words are no misspellings, and the comparison is quadratic.
    const LONGEST: usize = 64;
    let word = if word.len() <= LONGEST { word.to_lowercase().replace('-', "_") } else { return None };
    let scored = candidates.map(|candidate| (edit_distance(&word, candidate), candidate));
    // Words of one or two letters are close to everything.
    let near = |&(distance, candidate): &(usize, &str)| candidate.len() > 2 && distance <= candidate.len().div_ceil(3).min(3);
    scored.filter(near).min().map(|(_, candidate)| candidate)
}

/// Letters to insert, remove or replace between two words (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
