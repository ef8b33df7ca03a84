//! Several files, names that are unusual, names that are attacks.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use crate::helper::Role;
use crate::support::{LONG, Lab, Receiver, Topology, copy, copy_ok, pattern, run, sha256};

#[test]
fn several_files_arrive_with_their_unusual_names() {
    let lab = Lab::up(&Topology { link_a: "loss: 0.5%,", ..Topology::default() });
    let out = lab.folder.sub("out");
    let names: [&[u8]; 7] =
        [b"plain.txt", b"two words", b"-rf", "gr\u{fc}\u{df}e \u{1f9f5}".as_bytes(), b"new\nline", b"not \xff utf-8", b"empty"];
    let content = |index: usize| pattern(index as u64, if names[index] == b"empty" { 0 } else { 70_001 * index + 1 });
    let mut files: Vec<PathBuf> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        files.push(out.join(OsStr::from_bytes(name)));
        std::fs::write(&files[index], content(index)).unwrap();
    }
    let receiver = Receiver::start(&lab, "b", "in", &["--once"]);
    let report = copy_ok(&lab, ("a", "b"), &files, &[]);
    receiver.wait(LONG).ok();

    let mut expected: Vec<_> = names.iter().map(|name| OsString::from_vec(name.to_vec())).collect();
    expected.sort();
    assert_eq!(lab.folder.names("in"), expected);
    for (index, name) in names.iter().enumerate() {
        let arrived = std::fs::read(lab.folder.path().join("in").join(OsStr::from_bytes(name))).unwrap();
        assert!(arrived == content(index), "{}", String::from_utf8_lossy(name));
        assert_eq!(report["files"][index]["sha256_received"], *sha256(&arrived));
    }
    assert_eq!(report["files"].as_array().unwrap().len(), names.len());
}

#[test]
fn a_file_that_exists_is_not_replaced_unless_told_so() {
    let lab = Lab::up(&Topology::default());
    let file = lab.folder.file("data", b"new");
    lab.folder.sub("in");
    lab.folder.file("in/data", b"old");
    let receiver = Receiver::start(&lab, "b", "in", &[]);
    let refused = copy(&lab, ("a", "b"), std::slice::from_ref(&file), &[]).wait(LONG).fails(1);
    assert!(refused.contains("data exists already") && refused.contains("--overwrite"), "{refused}");
    assert_eq!(std::fs::read(lab.folder.path().join("in/data")).unwrap(), b"old");
    // The one that was refused leaves the receiver as it was.
    let other = lab.folder.file("other", b"other");
    copy_ok(&lab, ("a", "b"), &[other], &[]);
    drop(receiver);

    let _receiver = Receiver::start(&lab, "b", "in", &["--overwrite"]);
    copy_ok(&lab, ("a", "b"), &[file], &[]);
    assert_eq!(std::fs::read(lab.folder.path().join("in/data")).unwrap(), b"new");
    assert_eq!(lab.folder.names("in"), ["data", "other"]);
}

#[test]
fn a_name_that_leads_out_of_the_folder_is_refused() {
    let lab = Lab::up(&Topology::default());
    let receiver = Receiver::start(&lab, "b", "in", &[]);
    for name in ["../escaped", "/tmp/weft-e2e-escaped", "sub/escaped", "..", "", "in\0visible"] {
        let said = run(Role::Intruder { name: name.to_owned() }.command(&lab, "a"), LONG).ok().stdout;
        assert!(said.contains("refused: "), "{name:?}: {said}");
        receiver.command.says(r#""event":"failed""#, LONG);
    }
    assert_eq!(lab.folder.names("in"), [""; 0]);
    assert!(!lab.folder.path().join("escaped").exists() && !PathBuf::from("/tmp/weft-e2e-escaped").exists());
    // It serves honest senders as before.
    copy_ok(&lab, ("a", "b"), &[lab.folder.file("honest", b"honest")], &[]);
    assert_eq!(lab.folder.names("in"), ["honest"]);
}
