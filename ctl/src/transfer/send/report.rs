//! What `cp` says at its end.

use serde::Serialize;
use weft_verbs::Recovery;

use super::FileToSend;
use super::sender::Digests;
use crate::text;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    files: Vec<FileReport>,
    bytes: u64,
    /// From the connection to the receiver's last word: reading, hashing and writing included.
    seconds: f64,
    goodput_bps: f64,
    recovery: &'static str,
    /// Packets sent again; absent if the administration socket could not be asked.
    retransmissions: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FileReport {
    name: String,
    bytes: u64,
    sha256_sent: String,
    sha256_received: String,
}

impl Report {
    pub(super) fn new(files: &[FileToSend], digests: Vec<Digests>, seconds: f64, recovery: Recovery, retransmissions: Option<u64>) -> Self {
        let bytes: u64 = files.iter().map(|file| file.size).sum();
        let files = files.iter().zip(digests).map(|(file, digests)| FileReport {
            name: String::from_utf8_lossy(&file.name).into_owned(),
            bytes: file.size,
            sha256_sent: digests.sent,
            sha256_received: digests.received,
        });
        let goodput_bps = bytes as f64 * 8.0 / seconds.max(f64::MIN_POSITIVE);
        Self { files: files.collect(), bytes, seconds, goodput_bps, recovery: text::recovery(recovery), retransmissions }
    }

    pub(super) fn print(&self, host: &str, json: bool) -> anyhow::Result<u8> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(0);
        }
        for file in &self.files {
            println!("{}  {}  ({})", file.sha256_received, text::foreign(file.name.as_bytes()), text::bytes(file.bytes));
        }
        let again = self.retransmissions.map_or_else(|| "unknown".to_owned(), |packets| packets.to_string());
        println!(
            "{}, {} to {host} in {:.2} s: {} ({}, packets sent again: {again}); SHA-256 equal at both ends",
            text::count(self.files.len(), "file"),
            text::bytes(self.bytes),
            self.seconds,
            text::rate(self.goodput_bps),
            self.recovery
        );
        Ok(0)
    }
}
