#![allow(clippy::cast_possible_truncation)]

use proptest::prelude::*;

use super::*;

fn rate(text: &str) -> Result<u64, String> {
    parse_rate(text).map(BitRate::bits_per_second).map_err(|error| error.to_string())
}

#[test]
fn rates_are_read_exactly() {
    for (text, bits) in [
        ("10Gbit", 10_000_000_000),
        ("1.5Gbit", 1_500_000_000),
        ("100kbit/s", 100_000),
        ("100 Mbit / s", 0),
        ("0.000001Mbit", 1),
        ("1.6Tbit", 1_600_000_000_000),
        (" 7 bit ", 7),
    ] {
        assert_eq!(rate(text).unwrap_or(0), bits, "{text}");
    }
}

#[test]
fn refusals_name_the_text_and_what_to_write() {
    let rates = "write a number with bit, kbit, Mbit, Gbit or Tbit (per second), as in 10Gbit";
    assert_eq!(rate("10Gbps").unwrap_err(), format!("\"10Gbps\" has the unknown unit \"Gbps\"; {rates}"));
    assert_eq!(rate("10").unwrap_err(), format!("\"10\" has no unit; {rates}"));
    assert_eq!(rate("fast").unwrap_err(), format!("\"fast\" is not a rate; {rates}"));
    assert_eq!(rate("0Gbit").unwrap_err(), "\"0Gbit\" is no rate: it must be above zero");
    assert_eq!(rate("0.5bit").unwrap_err(), "\"0.5bit\" is finer than one bit per second");
    assert_eq!(rate("99999999999Gbit").unwrap_err(), "\"99999999999Gbit\" is too large");
    assert_eq!(parse_duration("0.1ns").unwrap_err().to_string(), "\"0.1ns\" is finer than one nanosecond");
    assert_eq!("101%".parse::<Probability>().unwrap_err().to_string(), "\"101%\" is above 100%");
    assert_eq!("0.00001%".parse::<Probability>().unwrap_err().to_string(), "\"0.00001%\" is finer than one in a million (1ppm)");
    for text in ["", "-1us", "+1us", "1.us", ".5us", "1e3us", "1_000us", "1,5us", "us", "1u s", "\u{661}us", "1us2"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    assert_eq!(rate("1\u{1b}[31m").unwrap_err().find('\u{1b}'), None);
}

#[test]
fn durations_bytes_and_probabilities_are_read_exactly() {
    let nanos = |text: &str| parse_duration(text).unwrap().as_nanos();
    assert_eq!(
        [nanos("5us"), nanos("1.5ms"), nanos("2s"), nanos("1 min"), nanos("3\u{b5}s"), nanos("0")],
        [5_000, 1_500_000, 2_000_000_000, 60_000_000_000, 3_000, 0]
    );
    let bytes = |text: &str| parse_bytes(text).unwrap();
    assert_eq!([bytes("256KiB"), bytes("1MB"), bytes("1514"), bytes("1.5KiB"), bytes("16GiB")], [262_144, 1_000_000, 1514, 1536, 16 << 30]);
    let parts = |text: &str| text.parse::<Probability>().unwrap().parts_per_million();
    assert_eq!([parts("1%"), parts("0.01%"), parts("500ppm"), parts("100%"), parts("0")], [10_000, 100, 500, 1_000_000, 0]);
}

#[test]
fn the_largest_exact_unit_is_printed() {
    let rate = |bits| rate_text(BitRate::new(bits).unwrap());
    assert_eq!([rate(10_000_000_000), rate(1_500_000_000), rate(1)], ["10Gbit", "1500Mbit", "1bit"]);
    assert_eq!([bytes_text(0), bytes_text(1 << 20), bytes_text(1_000_000), bytes_text(1514)], ["0B", "1MiB", "1MB", "1514B"]);
    let text = |parts| Probability::from_parts_per_million(parts).unwrap().to_string();
    assert_eq!([text(0), text(10_000), text(100), text(12_340), text(1_000_000)], ["0%", "1%", "0.01%", "1.234%", "100%"]);
    assert_eq!(Probability::from_parts_per_million(1_000_001), None);
}

/// Numbers with many and with few trailing zeros, decimal and binary.
fn numbers() -> impl Strategy<Value = u64> {
    let scales = prop::sample::select(vec![1, 1_000, 1_000_000, 1_000_000_000, 1 << 10, 1 << 20, 1 << 30]);
    prop_oneof![any::<u64>(), (0..1_000_000_u64, scales).prop_map(|(count, scale): (u64, u64)| count * scale)]
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(number in numbers()) {
        prop_assert_eq!(parse_bytes(&bytes_text(number)), Ok(number));
        let span = Duration::from_nanos(number);
        prop_assert_eq!(parse_duration(&duration_text(span)), Ok(span));
        if let Some(rate) = BitRate::new(number) {
            prop_assert_eq!(parse_rate(&rate_text(rate)), Ok(rate));
        }
        let probability = Probability::from_parts_per_million((number % 1_000_001) as u32).unwrap();
        prop_assert_eq!(probability.to_string().parse(), Ok(probability));
    }

    #[test]
    fn fractions_agree_with_whole_numbers_of_smaller_units(whole in 0..1_000_000_u64, fraction in 0..1_000_000_000_u64) {
        let span = parse_duration(&format!("{whole}.{fraction:09}s")).unwrap();
        prop_assert_eq!(span.as_nanos(), whole * 1_000_000_000 + fraction);
    }

    #[test]
    fn any_text_gives_a_value_or_a_message(text in any::<String>()) {
        for result in [parse_rate(&text).err(), parse_duration(&text).err(), parse_bytes(&text).err(), text.parse::<Probability>().err()] {
            prop_assert!(result.is_none_or(|error| !error.to_string().is_empty()));
        }
    }
}
