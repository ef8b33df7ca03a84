//! Files that are no configuration at all.

use std::fs;
use std::path::{Path, PathBuf};

use weft_config::{Config, defaults};

fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

/// The error of loading a file, without the file's name.
fn error(path: &Path) -> String {
    let message = Config::load(path).unwrap_err().to_string();
    message.strip_prefix(&path.display().to_string()).expect("the file is named").to_owned()
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let message = error(Path::new("/nowhere/weftd.yaml"));
    assert!(message.starts_with(": cannot be read: No such file or directory"), "{message}");
    assert!(error(Path::new("/")).starts_with(": cannot be read: "));
}

#[test]
fn an_endless_file_is_refused_at_the_limit() {
    assert_eq!(error(Path::new("/dev/zero")), ": the file is longer than 1048576 bytes");
    let exact = file("exact.yaml", &vec![b'#'; defaults::MAX_FILE]);
    assert!(error(&exact).contains("version: is missing"));
    assert_eq!(error(&file("long.yaml", &vec![b'#'; defaults::MAX_FILE + 1])), ": the file is longer than 1048576 bytes");
}

#[test]
fn a_file_that_is_no_utf_8_is_refused_with_the_line() {
    assert_eq!(error(&file("latin.yaml", b"version: 1\nnode: caf\xe9\n")), ":2: the text is not UTF-8");
}

#[test]
fn of_very_many_problems_the_first_are_listed_and_the_rest_is_counted() {
    let mut text = "version: 1\nnode: a\nports: [{ interface: eth0, role: host }]\n".to_owned();
    (0..1_000).for_each(|number| text.push_str(&format!("unknown{number}: 1\n")));
    let message = error(&file("many.yaml", text.as_bytes()));
    let lines: Vec<_> = message.lines().collect();
    assert_eq!(lines.len(), 26);
    assert!(lines[0].starts_with(":4: unknown0: unknown key") && lines[24].contains(":28: unknown24: "), "{message}");
    assert!(lines[25].ends_with(": and 975 more"), "{message}");
}
