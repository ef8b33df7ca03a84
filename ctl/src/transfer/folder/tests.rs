use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;

struct Place {
    outer: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        std::fs::create_dir(outer.path().join("in")).unwrap();
        Self { outer }
    }

    fn folder(&self, overwrite: bool) -> Folder {
        Folder::open(&self.path(""), overwrite).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.outer.path().join("in").join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(self.path("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn put(folder: &Folder, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let part = folder.create(name.as_bytes(), 0o644)?;
    rustix::io::write(part.fd(), bytes)?;
    part.commit()
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let place = Place::new();
    let folder = place.folder(true);
    let absolute = place.outer.path().join("out").into_os_string().into_string().unwrap();
    for name in ["", ".", "..", "../out", "a/b", "/", absolute.as_str(), "a\0b", &"x".repeat(251)] {
        assert!(folder.create(name.as_bytes(), 0o644).is_err(), "{name:?}");
    }
    assert!(place.names().is_empty() && !place.outer.path().join("out").exists());
}

#[test]
fn a_link_in_the_folder_is_replaced_and_never_followed() {
    let place = Place::new();
    let outside = place.outer.path().join("outside");
    std::fs::write(&outside, b"keep").unwrap();
    symlink(&outside, place.path("file")).unwrap();
    symlink(&outside, place.path("other.part")).unwrap();
    assert!(put(&place.folder(false), "file", b"new").is_err());
    put(&place.folder(true), "file", b"new").unwrap();
    assert!(place.folder(true).create(b"other", 0o644).is_err());
    assert_eq!((std::fs::read(&outside).unwrap(), std::fs::read(place.path("file")).unwrap()), (b"keep".to_vec(), b"new".to_vec()));
    assert!(!place.path("file").is_symlink());
}

#[test]
fn an_existing_file_stays_unless_overwriting_is_allowed() {
    let place = Place::new();
    put(&place.folder(false), "file", b"old").unwrap();
    assert!(put(&place.folder(false), "file", b"new").unwrap_err().to_string().contains("--overwrite"));
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"old");
    put(&place.folder(true), "file", b"new").unwrap();
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"new");
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced() {
    let place = Place::new();
    let folder = place.folder(false);
    let part = folder.create(b"file", 0o644).unwrap();
    std::fs::write(place.path("file"), b"theirs").unwrap();
    assert!(part.commit().is_err());
    assert_eq!((place.names(), std::fs::read(place.path("file")).unwrap()), (vec!["file".to_owned()], b"theirs".to_vec()));
}

#[test]
fn an_incomplete_file_is_removed_and_a_left_one_is_not_resumed() {
    let place = Place::new();
    let folder = place.folder(false);
    drop(folder.create(b"file", 0o644).unwrap());
    assert!(place.names().is_empty());
    std::fs::write(place.path("file.part"), b"half").unwrap();
    assert!(folder.create(b"file", 0o644).unwrap_err().to_string().contains("nothing is resumed"));
    assert_eq!(std::fs::read(place.path("file.part")).unwrap(), b"half");
}

#[test]
fn permissions_come_along_without_special_bits() {
    let place = Place::new();
    let folder = Folder { mask: 0o027, ..place.folder(false) };
    folder.create(b"file", 0o6775).unwrap().commit().unwrap();
    assert_eq!(std::fs::metadata(place.path("file")).unwrap().mode() & 0o7777, 0o750);
}

#[test]
fn names_of_any_bytes_are_names() {
    let place = Place::new();
    let folder = place.folder(false);
    let name = b"line\nbreak \xff\x1b[2J *";
    folder.create(name, 0o600).unwrap().commit().unwrap();
    assert!(place.path("").join(OsStr::from_bytes(name)).exists());
}

#[test]
fn what_is_no_folder_is_refused_with_what_to_do() {
    let place = Place::new();
    std::fs::write(place.path("file"), b"").unwrap();
    let message = |name: &str| Folder::open(&place.path(name), false).unwrap_err().to_string();
    assert!(message("file").contains("not a folder"));
    assert!(message("none").contains("create it first"));
}
