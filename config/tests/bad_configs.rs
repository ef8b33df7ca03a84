//! Every faulty configuration in `tests/bad` is refused with exactly the problems that stand beside it.
//!
//! `NAME.expect` has a line per problem: how the problem's line starts, without the file's name, as in `:5: ports[0].rate: "10Gbps"`.

use std::fs;
use std::path::{Path, PathBuf};

use weft_config::Config;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut cases: Vec<_> = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    cases.sort();
    cases
}

/// What is amiss with a case, or nothing.
fn disagreement(path: &Path) -> Option<String> {
    let name = path.display().to_string();
    let expected = fs::read_to_string(path.with_extension("expect")).unwrap_or_else(|error| panic!("{name}: no .expect file: {error}"));
    let Err(errors) = Config::load(path) else { return Some(format!("{name} was accepted")) };
    let found = errors.to_string();
    let found: Vec<_> = found.lines().map(|line| line.strip_prefix(&name).unwrap_or(line)).collect();
    let expected: Vec<_> = expected.lines().collect();
    let agree = found.len() == expected.len() && found.iter().zip(&expected).all(|(found, expected)| found.starts_with(expected));
    (!agree).then(|| format!("{name}\n  found:\n{}\n  expected:\n{}", found.join("\n"), expected.join("\n")))
}

#[test]
fn faulty_configurations_are_refused_with_all_their_problems_and_places() {
    let cases = cases();
    assert!(cases.len() >= 20, "only {} cases found", cases.len());
    let wrong: Vec<_> = cases.iter().filter_map(|path| disagreement(path)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
