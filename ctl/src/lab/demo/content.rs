//! The demo's file: programs of this machine and text, in pieces, until it is as large as wanted. Everybody who has the same
//! programs gets the same bytes. Not zeros and not one pattern: damage, loss and misplacement must show.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use weft_config::units::parse_bytes;

/// Least size: with fewer packets a run says nothing about loss recovery.
const SIZE_LEAST: u64 = 1 << 20;
/// Greatest size: the demo is to end in two minutes.
const SIZE_GREATEST: u64 = 4 << 30;
/// Lines of text between two programs, about 1 MiB.
const LINES: u64 = 16_000;

/// Reads the value of `--size`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let size = parse_bytes(text).map_err(|error| error.to_string())?;
    let fits = (SIZE_LEAST..=SIZE_GREATEST).contains(&size);
    if fits { Ok(size) } else { Err("a demo's file has 1MiB to 4GiB".to_owned()) }
}

/// Writes `size` bytes to `path`, taken from `programs` and generated text in turn.
pub(super) fn write(path: &Path, size: u64, programs: &[PathBuf]) -> anyhow::Result<()> {
    let fail = || format!("{}: cannot write a file of {size} bytes", path.display());
    let mut sink = Sink { file: BufWriter::new(File::create(path).with_context(fail)?), left: size };
    let mut round = 0;
    while sink.left > 0 {
        for program in programs {
            let mut source = File::open(program).with_context(|| format!("{}: cannot read", program.display()))?;
            sink.copy(&mut source).with_context(fail)?;
        }
        write_text(&mut sink, round).with_context(fail)?;
        round += 1;
    }
    sink.file.flush().with_context(fail)
}

fn write_text(sink: &mut Sink, round: u64) -> io::Result<()> {
    for line in round * LINES..(round + 1) * LINES {
        // A multiplicative hash (2^64 divided by the golden ratio) makes neighbouring lines differ in most digits.
        let text = format!("line {line}: a frame lost is a frame sent again, {:016x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        sink.copy(&mut text.as_bytes())?;
    }
    Ok(())
}

struct Sink {
    file: BufWriter<File>,
    left: u64,
}

impl Sink {
    /// Takes all of `source` that still fits.
    fn copy(&mut self, source: &mut impl io::Read) -> io::Result<()> {
        self.left -= io::copy(&mut source.take(self.left), &mut self.file)?;
        Ok(())
    }
}

/// SHA-256 of a file, as people write it.
pub(super) fn sha256(path: &Path) -> anyhow::Result<String> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).with_context(|| format!("{}: cannot open", path.display()))?);
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            read => digest.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_as_large_as_asked_the_same_every_time_and_never_repeats_a_block() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, b"a program").unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        write(&one, 3_000_001, std::slice::from_ref(&program)).unwrap();
        write(&other, 3_000_001, &[program]).unwrap();
        let bytes = std::fs::read(&one).unwrap();
        assert_eq!(bytes.len(), 3_000_001);
        assert_eq!(sha256(&one).unwrap(), sha256(&other).unwrap());
        let blocks: std::collections::HashSet<_> = bytes.chunks(1024).collect();
        assert_eq!(blocks.len(), bytes.len().div_ceil(1024));
    }

    #[test]
    fn the_digest_is_that_of_the_standards_example() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, b"abc").unwrap();
        assert_eq!(sha256(&path).unwrap(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn sizes_that_make_no_demo_are_refused() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert!(parse_size("1KiB").unwrap_err().contains("1MiB"));
        assert!(parse_size("much").unwrap_err().contains("much"));
    }
}
