//! Parsers of single values. Each refuses with a message that names the value and what is allowed.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use weft_proto::wire::{EtherType, MacAddr};
use weft_proto::{BitRate, Duration};

use crate::defaults;
use crate::document::{Node, Value};
use crate::model::Words;
use crate::problem::quoted;
use crate::section::closest;
use crate::units::{self, Probability, UnitError};

type Parsed<T> = Result<T, String>;

fn expected<T>(node: &Node, what: &str) -> Parsed<T> {
    Err(format!("expected {what}, found {}", node.shown()))
}

/// A text.
pub(crate) fn text(node: &Node) -> Parsed<&str> {
    match &node.value {
        Value::Text(text) => Ok(text),
        _ => expected(node, "a text (put it in quotes)"),
    }
}

/// `true` or `false`.
pub(crate) fn boolean(node: &Node) -> Parsed<bool> {
    match node.value {
        Value::Bool(value) => Ok(value),
        _ => expected(node, "true or false"),
    }
}

/// A whole number in a range.
pub(crate) fn integer<T>(range: RangeInclusive<T>) -> impl FnOnce(&Node) -> Parsed<T>
where
    T: TryFrom<i128> + PartialOrd + Display,
{
    move |node| {
        let Value::Integer(value) = node.value else {
            return expected(node, &format!("a whole number from {} to {}", range.start(), range.end()));
        };
        let within = T::try_from(value).ok().filter(|value| range.contains(value));
        within.ok_or_else(|| out_of_range(&value, range.start(), range.end()))
    }
}

/// The version of the format, of which there is one.
pub(crate) fn version(node: &Node) -> Parsed<u64> {
    match node.value {
        Value::Integer(value) if value == i128::from(defaults::VERSION) => Ok(defaults::VERSION),
        _ => Err(format!("{} is not a version of this format that is known here; write {}", node.shown(), defaults::VERSION)),
    }
}

/// A quantity with a unit. A bare number goes through the same parser, which knows whether it needs a unit.
fn quantity<T>(node: &Node, what: &str, parse: impl FnOnce(&str) -> Result<T, UnitError>) -> Parsed<T> {
    match &node.value {
        Value::Text(text) => parse(text).map_err(|error| error.to_string()),
        Value::Integer(_) | Value::Float(_) => parse(&node.shown()).map_err(|error| error.to_string()),
        _ => expected(node, what),
    }
}

fn out_of_range<T: Display>(value: &impl Display, least: &T, most: &T) -> String {
    format!("{value} is out of range; allowed are {least} to {most}")
}

/// A duration in a range.
pub(crate) fn duration(least: Duration, most: Duration) -> impl FnOnce(&Node) -> Parsed<Duration> {
    move |node| {
        let span = quantity(node, "a duration such as 5us", units::parse_duration)?;
        if least <= span && span <= most { Ok(span) } else { Err(out_of_range(&span, &least, &most)) }
    }
}

/// A number of bytes in a range.
pub(crate) fn bytes(range: RangeInclusive<u64>) -> impl FnOnce(&Node) -> Parsed<u64> {
    move |node| {
        let bytes = quantity(node, "a number of bytes such as 256KiB", units::parse_bytes)?;
        let refusal = || out_of_range(&units::bytes_text(bytes), &units::bytes_text(*range.start()), &units::bytes_text(*range.end()));
        if range.contains(&bytes) { Ok(bytes) } else { Err(refusal()) }
    }
}

/// A probability.
pub(crate) fn probability(node: &Node) -> Parsed<Probability> {
    quantity(node, "a probability such as 0.1%", str::parse)
}

/// A rate.
pub(crate) fn rate(node: &Node) -> Parsed<BitRate> {
    let rate = quantity(node, "a rate such as 10Gbit", units::parse_rate)?;
    if rate.bits_per_second() > defaults::MAX_RATE {
        let most = BitRate::new(defaults::MAX_RATE).map(units::rate_text).unwrap_or_default();
        return Err(format!("{} is out of range; allowed are at most {most}", units::rate_text(rate)));
    }
    Ok(rate)
}

/// One of the words of an enumeration.
pub(crate) fn word<T: Words>(node: &Node) -> Parsed<T> {
    let known = || T::WORDS.iter().map(|(word, _)| *word);
    let list = known().collect::<Vec<_>>().join(", ");
    let Value::Text(found) = &node.value else { return expected(node, &format!("one of {list}")) };
    T::from_word(found).ok_or_else(|| {
        let guess = closest(found, known()).map(|word| format!("; did you mean {word}?")).unwrap_or_default();
        format!("{} is not known; allowed are {list}{guess}", quoted(found))
    })
}

/// `keyword` for `None`, or what `parse` takes.
pub(crate) fn or_keyword<T>(keyword: &'static str, parse: impl FnOnce(&Node) -> Parsed<T>) -> impl FnOnce(&Node) -> Parsed<Option<T>> {
    move |node| match &node.value {
        Value::Text(text) if text == keyword => Ok(None),
        _ => parse(node).map(Some).map_err(|message| format!("{message}; or write {keyword}")),
    }
}

/// The name of a node, port or host: a word that is safe in metrics, paths and tables.
pub(crate) fn name(node: &Node) -> Parsed<String> {
    let name = match &node.value {
        // `a: 1` and the like: a name that happens to look like a number.
        Value::Integer(value) if *value >= 0 => value.to_string(),
        _ => text(node)?.to_owned(),
    };
    check_name(&name)?;
    Ok(name)
}

/// Checks a name; see [`name`].
pub(crate) fn check_name(name: &str) -> Parsed<()> {
    let fits = !name.is_empty() && name.len() <= defaults::MAX_NAME;
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    // A leading dash would be an option on a command line, a leading dot a path.
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if fits && plain && starts_well {
        return Ok(());
    }
    let most = defaults::MAX_NAME;
    Err(format!(
        "{} is no name; allowed are 1 to {most} letters, digits, dots, dashes and underscores, a letter or digit first",
        quoted(name)
    ))
}

/// The name of a Linux interface.
pub(crate) fn interface(node: &Node) -> Parsed<String> {
    let name = text(node)?;
    let most = defaults::MAX_INTERFACE_NAME;
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    if name.is_empty() || name.len() > most || !plain || name == "." || name == ".." {
        return Err(format!("{} is no interface name; allowed are 1 to {most} bytes without blanks, slashes and colons", quoted(name)));
    }
    Ok(name.to_owned())
}

/// The address of a station.
pub(crate) fn station(node: &Node) -> Parsed<MacAddr> {
    let form = "write six pairs of hexadecimal digits in quotes, as in \"02:00:00:00:00:0b\"";
    // Unquoted, some addresses are numbers in base 60 to older YAML readers; the quotes are worth asking for.
    let Value::Text(text) = &node.value else { return expected(node, &format!("an Ethernet address; {form}")) };
    let mac: MacAddr = text.parse().map_err(|_| format!("{} is no Ethernet address; {form}", quoted(text)))?;
    match mac {
        mac if mac.is_station() => Ok(mac),
        MacAddr::ZERO => Err(format!("{mac} is no host's address: all zero")),
        mac => Err(format!("{mac} is no host's address: a group address (the first pair is odd)")),
    }
}

/// An EtherType in a range, in quotes or not.
pub(crate) fn ethertype(range: RangeInclusive<u16>) -> impl FnOnce(&Node) -> Parsed<EtherType> {
    move |node| {
        let allowed = format!("{:#06x} to {:#06x}", range.start(), range.end());
        let number = match &node.value {
            Value::Integer(value) => Some(*value),
            Value::Text(text) => text.strip_prefix("0x").and_then(|digits| i128::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        let Some(value) = number else { return expected(node, &format!("an EtherType from {allowed}, as in 0x88b5")) };
        let within = u16::try_from(value).ok().filter(|value| range.contains(value));
        within.map(EtherType).ok_or_else(|| format!("{value} ({value:#06x}) is out of range; allowed are {allowed}"))
    }
}

/// The absolute path of a file.
pub(crate) fn path(node: &Node) -> Parsed<PathBuf> {
    let path = text(node)?;
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(format!("{} is no absolute path of a file", quoted(path)));
    }
    Ok(PathBuf::from(path))
}

/// The path of a Unix socket.
pub(crate) fn socket(node: &Node) -> Parsed<PathBuf> {
    let (path, most) = (text(node)?, defaults::MAX_SOCKET_PATH);
    if path.len() > most {
        return Err(format!("{} has {} bytes; a socket path has at most {most}", quoted(path), path.len()));
    }
    self::path(node)
}

/// The mode of a socket: octal digits in quotes.
pub(crate) fn mode(node: &Node) -> Parsed<u32> {
    let form = "write the octal file mode in quotes, as in \"0660\"; the owner needs 6 or 7, the highest is 0777";
    let Value::Text(text) = &node.value else { return Err(format!("{} is ambiguous; {form}", node.shown())) };
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777 && mode & 0o600 == 0o600);
    mode.ok_or_else(|| format!("{} is no mode of a socket; {form}", quoted(text)))
}

/// An address to listen on.
pub(crate) fn listen(node: &Node) -> Parsed<SocketAddr> {
    let form = "write an IP address and a port in quotes, as in \"127.0.0.1:9469\" or \"[::1]:9469\"";
    let Value::Text(text) = &node.value else { return expected(node, &format!("an address; {form}")) };
    text.parse().map_err(|_| format!("{} is no address to listen on; {form}", quoted(text)))
}
