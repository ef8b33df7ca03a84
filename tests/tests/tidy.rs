//! Rules of the house about the whole repository.

use weft_tests::tidy::{FILE_LIMIT, FUNCTION_LIMIT, Source, repository, sources};

fn all() -> Vec<Source> {
    let all = sources(".");
    assert!(all.len() > 50, "the sources were not found: {}", all.len());
    all
}

#[test]
fn no_function_is_longer_than_a_screen() {
    let long: Vec<String> = all()
        .iter()
        .filter(|source| !source.is_test())
        .flat_map(|source| source.functions().into_iter().map(move |function| (source, function)))
        .filter(|(_, (.., lines))| *lines > FUNCTION_LIMIT)
        .map(|(source, (name, at, lines))| format!("{}:{at} {name}: {lines} code lines", source.path.display()))
        .collect();
    assert!(long.is_empty(), "at most {FUNCTION_LIMIT} code lines; split into named stages:\n{}", long.join("\n"));
}

#[test]
fn no_file_does_everything() {
    let long: Vec<String> = all()
        .iter()
        .filter(|source| !source.is_test())
        .map(|source| (source.path.display(), source.production().len()))
        .filter(|(_, lines)| *lines > FILE_LIMIT)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "at most {FILE_LIMIT} production lines; split by responsibility:\n{}", long.join("\n"));
}

/// What the core must not know: clocks, threads, files, sockets, and memory behind the compiler's back.
const IMPURE: &[&str] = &[
    "std::time",
    "Instant::now",
    "SystemTime",
    "std::thread",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::io",
    "thread_rng",
    "OsRng",
    "getrandom",
    "unsafe ",
    "static mut",
];

#[test]
fn the_core_is_pure() {
    let core = sources("proto/src");
    assert!(core.iter().any(|source| source.path.ends_with("lib.rs") && source.text.contains("#![no_std]")), "the core is no_std");
    let impure: Vec<String> = core
        .iter()
        .flat_map(|source| source.text.lines().zip(1..).map(move |line| (source, line)))
        .filter(|(_, (line, _))| !line.trim_start().starts_with("//") && IMPURE.iter().any(|word| line.contains(word)))
        .map(|(source, (line, number))| format!("{}:{number} {}", source.path.display(), line.trim()))
        .collect();
    assert!(impure.is_empty(), "the core decides and does nothing else:\n{}", impure.join("\n"));
}

/// The lines of a section of a manifest.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let lines = manifest.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn the_core_depends_on_checksums_hashes_randomness_and_wire_views_only() {
    let manifest = std::fs::read_to_string(repository().join("proto/Cargo.toml")).unwrap();
    let names: Vec<&str> = section(&manifest, "dependencies").iter().map(|line| line.split(['.', ' ', '=']).next().unwrap()).collect();
    assert_eq!(names, ["crc32c", "hashbrown", "rand_chacha", "rand_core", "siphasher", "zerocopy"]);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let root = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    assert!(section(&root, "workspace.lints.rust").contains(&"unsafe_code = \"deny\""));
    let members: Vec<&str> = root.lines().find(|line| line.starts_with("members")).unwrap().split('"').skip(1).step_by(2).collect();
    assert!(members.len() >= 7, "{members:?}");
    for member in members {
        let manifest = std::fs::read_to_string(repository().join(member).join("Cargo.toml")).unwrap();
        assert_eq!(section(&manifest, "lints"), ["workspace = true"], "{member}/Cargo.toml");
    }
}

#[test]
fn modules_that_use_unsafe_say_so_and_why_at_each_place() {
    for source in all().iter().filter(|source| source.path.starts_with("daemon/src") || source.path.starts_with("verbs/src")) {
        // Looked for in two pieces, so that this line does not match.
        let uses = source.text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(concat!("unsafe", " {")));
        let reasons = source.text.contains("// SAFETY:");
        assert_eq!(uses, uses && reasons, "{}: an unsafe block without its reason", source.path.display());
    }
}
