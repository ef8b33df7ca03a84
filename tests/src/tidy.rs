//! Rules of the house about source text that neither compiler nor lints look after.
//!
//! Works on text, line by line, which is exact enough for code that rustfmt has been over. Called by `tests/tidy.rs`.

use std::path::{Path, PathBuf};

/// Most code lines of a function: one that is longer hides stages that want names.
pub const FUNCTION_LIMIT: usize = 70;
/// Most production lines of a file.
pub const FILE_LIMIT: usize = 600;

/// A source file of the repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path from the top of the repository.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// The top of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// All Rust sources below a folder of the repository, build folders left out.
pub fn sources(below: &str) -> Vec<Source> {
    let top = repository();
    let mut found = Vec::new();
    collect(&top, &top.join(below), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(top: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.') || name == "target";
        if path.is_dir() && !hidden {
            collect(top, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            found.push(Source { path: path.strip_prefix(top).unwrap_or(&path).to_path_buf(), text });
        }
    }
}

impl Source {
    /// True for files that hold nothing but tests.
    pub fn is_test(&self) -> bool {
        let name = self.path.file_name().is_some_and(|name| name == "tests.rs");
        name || self.path.components().skip(1).any(|part| part.as_os_str() == "tests" || part.as_os_str() == "benches")
    }

    /// The lines in front of a test module at the end.
    pub fn production(&self) -> Vec<&str> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(|pair| pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod "));
        lines[..tests.filter(|&at| !lines[at + 1].ends_with(';')).unwrap_or(lines.len())].to_vec()
    }

    /// Every function with its first line's number and its code lines.
    pub fn functions(&self) -> Vec<(&str, usize, usize)> {
        let lines = self.production();
        let mut found = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else { continue };
            let indent = &line[..line.len() - line.trim_start().len()];
            let open = lines[at..].iter().position(|line| line.ends_with(['{', ';', '}'])).unwrap_or(0);
            if !lines[at + open].ends_with('{') {
                continue;
            }
            let close = lines[at + open..].iter().position(|line| line.strip_prefix(indent) == Some("}")).unwrap_or(0);
            found.push((name, at + 1, lines[at..=at + open + close].iter().filter(|line| is_code(line)).count()));
        }
        found
    }
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

/// The name of the function that a line begins to define.
fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    while let Some(behind) = QUALIFIERS.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = behind;
    }
    let name = rest.strip_prefix("fn ")?;
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

const QUALIFIERS: [&str; 8] = ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe ", "default ", "extern \"C\" "];

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: PathBuf::from(path), text: text.to_string() }
    }

    #[test]
    fn functions_are_measured_without_blanks_and_comments_and_test_modules_left_out() {
        let text = "pub(super) const fn short() -> u8 { 1 }\n\nimpl X {\n    pub fn long(\n        a: u8,\n    ) -> u8 {\n        // why\n\n        a\n    }\n}\n\n#[cfg(test)]\nmod tests {\n    fn test() {\n    }\n}\n";
        let source = source("proto/src/x.rs", text);
        assert_eq!(source.functions(), [("long", 4, 5)]);
        assert_eq!(source.production().len(), 12);
    }

    #[test]
    fn files_of_tests_are_known_by_their_place() {
        for (path, test) in
            [("proto/src/x/tests.rs", true), ("config/tests/x.rs", true), ("tests/tests/x.rs", true), ("tests/src/x.rs", false)]
        {
            assert_eq!(source(path, "").is_test(), test, "{path}");
        }
    }
}
