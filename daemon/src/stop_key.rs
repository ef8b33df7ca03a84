//! The key that control packets of stop control are sealed with, from the file that the configuration names.
//!
//! What the file holds appears in no message.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use weft_config::Config;
use weft_proto::wire::StopKey;

/// Digits of a key: 128 bits.
const DIGITS: usize = 32;
/// Rights of those who are neither the owner nor of the group.
const OTHERS: u32 = 0o007;
/// Longer files are no keys, even with blanks around the digits.
const LONGEST: u64 = 256;

/// The key cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The operating system said no.
    #[error("stop.key_file: {} cannot be read: {source}; create it with `(umask 077; openssl rand -hex 16 > {})`, or remove the key", path.display(), path.display())]
    Unreadable {
        /** The file. */
        path: PathBuf,
        /** The operating system's answer. */
        source: io::Error,
    },
    /// Everybody may read it.
    #[error("stop.key_file: {} is open to every user, mode {mode:04o}; run `chmod o-rwx {}`", path.display(), path.display())]
    Open {
        /** The file. */
        path: PathBuf,
        /** Its mode. */
        mode: u32,
    },
    /// It holds something else.
    #[error("stop.key_file: {} does not hold 32 hexadecimal digits; write some with `openssl rand -hex 16`", path.display())]
    NotAKey {
        /** The file. */
        path: PathBuf,
    },
}

/// The key that a configuration asks for, if it asks for one.
///
/// # Errors
/// If its file cannot be read, is open to everybody, or holds no key.
pub fn of(config: &Config) -> Result<Option<StopKey>, KeyError> {
    let file = config.stop.as_ref().and_then(|stop| stop.key_file.as_deref());
    file.map(read).transpose()
}

fn read(path: &Path) -> Result<StopKey, KeyError> {
    let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyError::Open { path: path.to_owned(), mode });
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(unreadable)?;
    key_of(text.trim_ascii()).ok_or_else(|| KeyError::NotAKey { path: path.to_owned() })
}

fn key_of(digits: &[u8]) -> Option<StopKey> {
    if digits.len() != DIGITS {
        return None;
    }
    let mut key = [0; DIGITS / 2];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(16 * value(pair[0])? + value(pair[1])?).ok()?;
    }
    Some(StopKey(key))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0eFF";

    fn file(content: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stop.key");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_key_is_32_hexadecimal_digits_with_blanks_around_them() {
        for content in [HEX.to_owned(), format!("{HEX}\n"), format!("  {HEX} \n\n")] {
            let (_folder, path) = file(&content, 0o600);
            assert_eq!(read(&path).unwrap(), StopKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]));
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_not_repeated() {
        for content in
            ["", "00010203", "000102030405060708090a0b0c0d0eFG", "000102030405060708090a0b0c0d0eFF0", "00 102030405060708090a0b0c0d0eFF"]
        {
            let (_folder, path) = file(content, 0o600);
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains("32 hexadecimal digits"), "{message}");
            assert!(content.is_empty() || !message.contains(content), "{message}");
        }
    }

    #[test]
    fn a_file_that_everybody_may_read_is_refused_with_the_remedy() {
        for mode in [0o644, 0o604, 0o602] {
            let (_folder, path) = file(HEX, mode);
            let message = read(&path).unwrap_err().to_string();
            assert!(message.contains(&format!("run `chmod o-rwx {}`", path.display())), "{message}");
        }
        let (_folder, path) = file(HEX, 0o640);
        assert!(read(&path).is_ok(), "its group may");
    }

    #[test]
    fn a_missing_file_says_how_to_make_one() {
        let message = read(Path::new("/nonexistent/stop.key")).unwrap_err().to_string();
        assert!(message.contains("/nonexistent/stop.key cannot be read") && message.contains("openssl rand"), "{message}");
    }
}
