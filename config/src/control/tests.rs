use proptest::prelude::*;

use super::*;

fn refusal(line: &[u8]) -> (Option<u64>, ControlError) {
    let reply = parse_request(line).unwrap_err();
    let Outcome::Error(error) = reply.outcome else { panic!("a result") };
    (reply.id, error)
}

#[test]
fn requests_read_as_documented() {
    let line = br#"{"version":1,"id":7,"request":{"type":"qps","offset":512}}"#;
    assert_eq!(parse_request(line), Ok(Envelope::new(7, Request::Qps { offset: 512 })));
    let line = b"{\"version\":1,\"id\":7,\"request\":{\"type\":\"qps\"}}\n";
    assert_eq!(parse_request(line), Ok(Envelope::new(7, Request::Qps { offset: 0 })));
}

#[test]
fn every_type_of_request_survives_the_round_trip_and_is_listed() {
    let requests = [
        Request::Status,
        Request::Ports { offset: 1 },
        Request::Peers { offset: 1 },
        Request::Qps { offset: 1 },
        Request::Qp { qp: 9 },
        Request::QpTrace { qp: 9, last: 5 },
        Request::Fdb { offset: 1 },
        Request::Queues { offset: 1 },
        Request::Hosts { offset: 1 },
        Request::Counters,
        Request::StopShow { offset: 1 },
        Request::StopEvents { since: Some(3) },
        Request::StopSend { host: "b".to_owned(), priority: Some(1), timer: Some(2), rate: None },
        Request::StopCancel { host: "b".to_owned() },
        Request::Config,
        Request::Reload,
        Request::Shutdown,
    ];
    assert_eq!(requests.len(), REQUEST_TYPES.len());
    for (request, word) in requests.into_iter().zip(REQUEST_TYPES) {
        assert_eq!(serde_json::to_value(&request).unwrap()["type"], word);
        let envelope = Envelope::new(u64::MAX, request);
        let line = encode_line(&envelope, MAX_REQUEST).unwrap();
        assert_eq!((line.last(), parse_request(&line)), (Some(&b'\n'), Ok(envelope)));
    }
}

#[test]
fn what_has_a_default_may_be_left_out() {
    for word in ["ports", "peers", "qps", "fdb", "queues", "hosts"] {
        let line = serde_json::json!({"version": 1, "id": 3, "request": {"type": word}});
        assert!(parse_request(line.to_string().as_bytes()).is_ok(), "{word}");
    }
    let line = br#"{"version":1,"id":3,"request":{"type":"qp_trace","qp":258}}"#;
    assert_eq!(parse_request(line), Ok(Envelope::new(3, Request::QpTrace { qp: 258, last: u32::MAX })));
}

#[test]
fn bad_requests_get_a_code_a_reason_and_a_hint_and_their_id_where_there_is_one() {
    let cases: [(&[u8], Option<u64>, ErrorCode); 12] = [
        (b"", None, ErrorCode::BadJson),
        (b"{", None, ErrorCode::BadJson),
        (b"\xff\xfe", None, ErrorCode::BadJson),
        (b"[1]", None, ErrorCode::BadVersion),
        (br#"{"version":2,"id":1,"anything":true}"#, Some(1), ErrorCode::BadVersion),
        (br#"{"version":1,"request":{"type":"status"}}"#, None, ErrorCode::BadRequest),
        (br#"{"version":1,"id":-1,"request":{"type":"status"}}"#, None, ErrorCode::BadRequest),
        (br#"{"version":1,"id":1}"#, Some(1), ErrorCode::BadRequest),
        (br#"{"version":1,"id":1,"request":{"type":"qps","ofset":1}}"#, Some(1), ErrorCode::BadRequest),
        (br#"{"version":1,"id":1,"request":{"type":"qp"}}"#, Some(1), ErrorCode::BadRequest),
        (br#"{"version":1,"id":1,"request":{"type":"qp_trace","qp":-1}}"#, Some(1), ErrorCode::BadRequest),
        (br#"{"version":1,"id":1,"request":{"type":"reboot"}}"#, Some(1), ErrorCode::UnknownRequest),
    ];
    for (line, id, code) in cases {
        let (found_id, error) = refusal(line);
        assert_eq!((found_id, error.code), (id, code), "{}", String::from_utf8_lossy(line));
        assert!(!error.message.is_empty() && !error.hint.is_empty());
    }
    assert_eq!(refusal(&vec![b' '; MAX_REQUEST + 2]).1.code, ErrorCode::TooLong);
    assert_eq!(refusal("[".repeat(MAX_REQUEST).as_bytes()).1.code, ErrorCode::BadJson);
}

#[test]
fn replies_have_the_documented_form() {
    let line = encode_line(&Reply::result(7, Stopping { pid: 42 }), MAX_REPLY).unwrap();
    assert_eq!(line, b"{\"version\":1,\"id\":7,\"result\":{\"pid\":42}}\n");
    let error = ControlError::new(ErrorCode::Busy, "m", "h");
    let line = encode_line(&ErrorReply::error(None, error.clone()), MAX_REPLY).unwrap();
    assert_eq!(line, b"{\"version\":1,\"error\":{\"code\":\"busy\",\"message\":\"m\",\"hint\":\"h\"}}\n");
    assert_eq!(parse_reply::<Stopping>(&line, 7), Err(ReplyError::Refused(error)));
}

#[test]
fn a_client_takes_only_the_answer_to_its_request_and_ignores_new_fields() {
    let line = br#"{"version":1,"id":7,"result":{"pid":42,"later":1},"extra":[]}"#;
    assert_eq!(parse_reply(line, 7), Ok(Stopping { pid: 42 }));
    assert_eq!(parse_reply::<Stopping>(line, 8), Err(ReplyError::WrongId { expected: 8, found: Some(7) }));
    assert!(matches!(parse_reply::<Status>(line, 7), Err(ReplyError::Malformed(_))));
    let line = br#"{"version":1,"id":8,"error":{"code":"busy","message":"m"}}"#;
    assert_eq!(parse_reply::<Stopping>(line, 7), Err(ReplyError::WrongId { expected: 7, found: Some(8) }));
    let line = br#"{"version":1,"id":7,"error":{"code":"from_the_future","message":"m"}}"#;
    let expected = ControlError::new(ErrorCode::Unknown, "m", "");
    assert_eq!(parse_reply::<Stopping>(line, 7), Err(ReplyError::Refused(expected)));
}

#[test]
fn errors_read_as_sentences() {
    assert_eq!(ControlError::new(ErrorCode::Busy, "it failed", "try again").to_string(), "it failed; try again");
    assert_eq!(ControlError::new(ErrorCode::Busy, "it failed", "").to_string(), "it failed");
}

#[test]
fn a_message_beyond_its_limit_is_not_sent() {
    assert_eq!(encode_line(&"x".repeat(9), 10).unwrap_err().code, ErrorCode::TooLong);
    assert!(encode_line(&"x".repeat(8), 10).is_ok());
}

/// The largest of what pages hold: every number and text at its longest.
fn largest_qp() -> QpInfo {
    let max = u64::MAX;
    let counters = serde_json::to_value(QpCounters::default()).unwrap();
    let full = counters.as_object().unwrap().keys().map(|key| (key.clone(), max.into())).collect();
    let text = || "x".repeat(crate::defaults::MAX_NAME);
    QpInfo {
        qp: u32::MAX,
        application: u32::MAX,
        state: text(),
        peer: Some("02:00:00:00:00:0b".to_owned()),
        peer_name: Some(text()),
        peer_qp: Some(u32::MAX),
        priority: u8::MAX,
        recovery_offered: text(),
        recovery: Some(text()),
        payload: u32::MAX,
        window_cap: Some(u32::MAX),
        in_flight: u32::MAX,
        sq_used: u32::MAX,
        sq_depth: u32::MAX,
        rq_used: u32::MAX,
        rq_depth: u32::MAX,
        srtt_us: Some(max),
        rttvar_us: Some(max),
        rtt_percentiles_us: Some([max; 3]),
        farthest_early: u32::MAX,
        congestion: Some(Congestion { algorithm: text(), window_milli_packets: Some(max), rate_bps: Some(max) }),
        counters: serde_json::from_value(serde_json::Value::Object(full)).unwrap(),
        counts: std::collections::BTreeMap::new(),
    }
}

#[test]
fn a_full_page_of_the_largest_entries_fits_a_reply() {
    let page = Page::of(vec![largest_qp(); 65_534].into_iter(), 0);
    assert_eq!((page.total, page.items.len()), (65_534, PAGE));
    assert!(encode_line(&Reply::result(u64::MAX, page), MAX_REPLY).is_ok());
}

#[test]
fn pages_walk_over_the_whole_list_and_end() {
    let all: Vec<u32> = (0..1_200).collect();
    let (mut offset, mut seen) = (Some(0), Vec::new());
    while let Some(at) = offset {
        let page = Page::of(all.iter().copied(), at);
        seen.extend(page.items.iter().copied());
        offset = page.next_offset();
    }
    assert_eq!(seen, all);
    assert_eq!(Page::of(all.iter(), u64::MAX).next_offset(), None);
}

/// What a buffer of whole lines would hand out.
fn naive_lines(bytes: &[u8], limit: usize) -> (Vec<Vec<u8>>, bool) {
    let mut parts: Vec<_> = bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let long = parts.iter().position(|part| part.len() > limit);
    let last = long.unwrap_or(parts.len() - 1);
    parts.truncate(last);
    (parts, long.is_some())
}

proptest! {
    #[test]
    fn lines_come_out_as_if_the_stream_were_cut_at_newlines(
        bytes in prop::collection::vec(prop::sample::select(&b"ab\n"[..]), 0..60),
        cuts in prop::collection::vec(1..8_usize, 60),
        limit in 1..10_usize,
    ) {
        let (mut buffer, mut lines, mut failed, mut rest) = (LineBuffer::new(limit), Vec::new(), false, &bytes[..]);
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            (rest, ()) = (later, buffer.push(now));
            loop {
                match buffer.next_line() {
                    Ok(Some(line)) => lines.push(line),
                    Ok(None) => break,
                    Err(error) => { prop_assert_eq!(error.limit, limit); failed = true; break }
                }
            }
        }
        prop_assert_eq!((lines, failed), naive_lines(&bytes, limit));
    }

    #[test]
    fn any_bytes_are_a_request_or_a_refusal_that_can_be_sent(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Err(reply) = parse_request(&bytes) {
            prop_assert!(encode_line(&reply, MAX_REPLY).is_ok());
        }
    }

    #[test]
    fn damaged_requests_are_a_request_or_a_refusal_that_can_be_sent(at in 0..60_usize, byte in any::<u8>(), cut in 0..61_usize) {
        let mut line = br#"{"version":1,"id":7,"request":{"type":"qps","offset":512}}"#.to_vec();
        if let Some(place) = line.get_mut(at) { *place = byte; }
        line.truncate(cut);
        if let Err(reply) = parse_request(&line) {
            prop_assert!(encode_line(&reply, MAX_REPLY).is_ok());
        }
        let _ = parse_reply::<Status>(&line, 7);
    }
}
