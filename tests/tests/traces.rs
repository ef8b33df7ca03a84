//! Every trace in `tests/traces` replayed against the machines of `irn-strict`.

use weft_tests::trace::replay;

#[test]
fn every_trace_comes_out_as_written() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/traces");
    let mut files: Vec<_> = std::fs::read_dir(folder).expect(folder).map(|entry| entry.expect(folder).path()).collect();
    files.sort();
    assert!(files.len() >= 18, "traces are missing: {files:?}");
    let wrong: Vec<String> = files
        .iter()
        .filter_map(|file| {
            let text = std::fs::read_to_string(file).expect("readable");
            replay(&text).err().map(|wrong| format!("{}: {wrong}", file.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
