//! Quantities and foreign text as people read them.

/// With three significant digits and a decimal prefix, as in `1.94 Gbit/s`.
pub(crate) fn rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// With three significant digits and a binary prefix, as in `64.0 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    let count = count as f64;
    scaled(count, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", units[unit])
}

/// Nanoseconds, as in `12.3 us`.
pub(crate) fn nanoseconds(span: u64) -> String {
    let span = span as f64;
    scaled(span, 1000.0, &["ns", "us", "ms", "s"])
}

/// A number of things, as in `1 file` and `2 files`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A span in seconds, in its two largest units, as in `2 d 3 h`.
pub(crate) fn seconds(span: u64) -> String {
    let parts = [(span / 86_400, "d"), (span / 3600 % 24, "h"), (span / 60 % 60, "min"), (span % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(3);
    let shown = parts[first..].iter().take(2).filter(|(count, _)| *count > 0 || span == 0);
    shown.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
}

/// Foreign bytes, a file name perhaps, harmless to a terminal.
pub(crate) fn foreign(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().collect::<String>().replace("\\'", "'").replace("\\\"", "\"")
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a recovery mode, as in the configuration.
pub(crate) const fn recovery(mode: weft_verbs::Recovery) -> &'static str {
    match mode {
        weft_verbs::Recovery::Irn => "irn",
        weft_verbs::Recovery::IrnStrict => "irn-strict",
        weft_verbs::Recovery::SelectiveNoSack => "selective-no-sack",
        weft_verbs::Recovery::GoBackN => "go-back-n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_and_the_unit_that_fits() {
        assert_eq!(rate(1.943e9), "1.94 Gbit/s");
        assert_eq!(rate(999.9e3), "1.00 Mbit/s");
        assert_eq!(rate(0.0), "0.00 bit/s");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(64 << 20), "64.0 MiB");
        assert_eq!(bytes(u64::MAX), "16384 PiB");
        assert_eq!(nanoseconds(12_340), "12.3 us");
    }

    #[test]
    fn spans_have_at_most_two_units() {
        assert_eq!(seconds(0), "0 s");
        assert_eq!(seconds(59), "59 s");
        assert_eq!(seconds(3600), "1 h");
        assert_eq!(seconds(2 * 86_400 + 3 * 3600 + 59), "2 d 3 h");
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(foreign(b"it's \"a\" \x1b[2J\n\xff"), "it's \"a\" \\u{1b}[2J\\n\u{fffd}");
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
