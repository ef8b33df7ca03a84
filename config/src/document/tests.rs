use super::*;

fn error(text: &str) -> String {
    parse(text, "f.yaml").unwrap_err().to_string()
}

/// Every key and plain value with its number.
fn words(node: &Node, into: &mut Vec<(usize, String)>) {
    match &node.value {
        Value::Text(text) => into.push((node.id, text.clone())),
        Value::List(items) => items.iter().for_each(|item| words(item, into)),
        Value::Map(entries) => {
            for entry in entries {
                into.push((entry.id, entry.key.clone()));
                words(&entry.node, into);
            }
        }
        _ => {}
    }
}

#[test]
fn every_key_and_value_is_found_on_its_line_in_block_and_flow_style() {
    let text = "l1: l1\nl2:\n  - l3\n  - l4: l4\n    l5:\n      [l6,\n       {l7: l7, l7: l7}]\n\"l8\":\n  - - l9\n# ports: no\nl11: {\n  l12: 'l12' }\n";
    let mut found = Vec::new();
    words(&parse(text, "f").unwrap(), &mut found);
    assert_eq!(found.len(), 17);
    for (id, word) in found {
        assert_eq!(line_of(text, id).map(|line| format!("l{line}")), Some(word));
    }
}

#[test]
fn scalars_keep_their_kinds_and_keys_their_spelling() {
    let root = parse("0: 0x10\n0xa: 'x'\nyes: off\nf: 1.5\nn:\nb: true\n", "f").unwrap();
    let Value::Map(entries) = root.value else { panic!("no map") };
    let shown: Vec<_> = entries.iter().map(|entry| format!("{}={}", entry.key, entry.node.shown())).collect();
    assert_eq!(shown, ["0=16", "0xa=\"x\"", "yes=\"off\"", "f=1.5", "n=nothing", "b=true"]);
}

#[test]
fn syntax_errors_name_file_and_line() {
    assert!(error("a: 1\nb: [1\nc: 2\n").starts_with("f.yaml:3: "), "{}", error("a: 1\nb: [1\nc: 2\n"));
    assert!(error("a: !!binary x\nb: !t x\n").starts_with("f.yaml:2: b: tags (words that start with !) are not supported"));
    assert!(error("a: *nobody\n").starts_with("f.yaml:1: unknown anchor"));
    assert!(error("a: 1\n---\nb: 1\n").contains("more than one document"));
    assert!(error("[a]: 1\n").starts_with("f.yaml:1: invalid type: sequence, expected a plain key"));
}

#[test]
fn deep_nesting_ends_in_an_error() {
    for opening in ["[", "- ", "{a: ", "? ", "? - "] {
        assert!(error(&opening.repeat(9_000)).starts_with("f.yaml:1: "), "{opening}");
    }
    let steps: String = (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(error(&steps).contains("recursion limit exceeded"));
}

#[test]
fn what_makes_the_library_slow_is_refused_before_it_starts() {
    assert!(error(&format!("\n{}", "[']',".repeat(10_001))).starts_with("f.yaml:2: more than 10000 brackets"));
    assert!(error("%TAG !a! b\n---\na: 1\n").starts_with("f.yaml:1: directives"));
}

#[test]
fn alias_bombs_of_values_and_of_text_are_refused() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (from, to) in ["a", "b", "c", "d", "e", "f"].iter().zip(["b", "c", "d", "e", "f", "g"]) {
        bomb.push_str(&format!("{to}: &{to} [{}]\n", [format!("*{from}").as_str(); 10].join(", ")));
    }
    let message = error(&bomb);
    assert!(message.contains("repetition limit exceeded") || message.contains("more than 400000 values"), "{message}");
    let wide = format!("a: &a\n{}b:\n{}", "- x\n".repeat(5_000), "- *a\n".repeat(100));
    assert!(error(&wide).contains("more than 400000 values"), "{}", error(&wide));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(400_000), ["*a"; 10].join(", "));
    assert!(error(&long).contains("more than 2097152 bytes of text"), "{}", error(&long));
}

#[test]
fn a_file_over_the_limit_is_refused_with_its_size() {
    assert_eq!(error(&"#".repeat(MAX_FILE + 1)), "f.yaml: the file has 1048577 bytes; at most 1048576 are allowed");
    assert!(parse(&"#".repeat(MAX_FILE), "f.yaml").is_ok());
    let many = "- \n".repeat(MAX_FILE / 3);
    assert!(parse(&many, "f.yaml").is_ok());
}
