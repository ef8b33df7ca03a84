use super::*;

#[test]
fn the_longest_messages_fit() {
    let begin = ToReceiver::Begin { name: vec![200; 255], size: u64::MAX, mode: 0o777 };
    let refused = ToSender::Refused { message: brief(&"\u{1}".repeat(1000)), damaged: true };
    for bytes in [encode(&begin), encode(&refused)] {
        assert!(bytes.len() <= usize::try_from(MAX_MESSAGE).unwrap(), "{}", bytes.len());
    }
    let hello = encode(&Hello::new(MAX_CHUNK, MAX_WINDOW));
    assert!(hello.len() <= weft_verbs::protocol::MAX_PRIVATE);
}

#[test]
fn greetings_of_others_are_turned_down_with_a_reason() {
    let reason = |text: &str| Hello::decode(text.as_bytes()).unwrap_err();
    assert!(reason("").contains("weftctl cp only"));
    assert!(reason(r#"{"magic":"weft-bench","version":1}"#).contains("weftctl cp only"));
    assert!(reason(r#"{"magic":"weft-files","version":2,"more":0}"#).contains("another version"));
    assert!(reason(r#"{"magic":"weft-files","version":1,"chunk":-1,"window":1}"#).contains("not understand"));
}

#[test]
fn what_is_granted_keeps_the_receivers_limits() {
    let granted = |chunk, window| Hello::new(chunk, window).granted();
    assert_eq!(granted(256 << 10, 16), (256 << 10, 16));
    assert_eq!(granted(0, 0), (1024, 1));
    let (chunk, window) = granted(u32::MAX, u32::MAX);
    assert!(u64::from(chunk) * u64::from(window) <= MAX_OPEN && window >= 1);
}

#[test]
fn a_grant_of_more_than_was_asked_for_is_none() {
    let hello = Hello::new(4096, 4);
    let decode = |chunk, window| Grant::decode(&encode(&Grant { chunk, window, rkey: 7 }), &hello);
    assert!(decode(4096, 4).is_some() && decode(1, 1).is_some());
    assert!(decode(4097, 4).is_none() && decode(4096, 5).is_none() && decode(0, 4).is_none() && decode(4096, 0).is_none());
    assert!(Grant::decode(b"weft", &hello).is_none());
}

#[test]
fn the_window_opens_only_as_the_receiver_consumes() {
    let mut window = Window::new(2);
    window.send();
    assert!(window.has_room());
    window.send();
    assert!(!window.has_room());
    assert!(!window.credit(3), "more than was sent");
    assert!(window.credit(1) && window.has_room());
    assert!(!window.credit(0), "less than before");
}
