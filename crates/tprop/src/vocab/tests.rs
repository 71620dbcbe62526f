use super::*;
use proptest::prelude::*;
use serde_json::json;

fn vocab(words: &[&str], level: Level, eos: bool, underscores: bool) -> Vocab {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    Vocab::new(words, Cutting { level, eos, underscores }).expect("different words")
}

#[test]
fn words_and_back() {
    let v = vocab(&["<eos>", "a", "bc", "<unk>"], Level::Word, true, false);
    assert_eq!(v.encode(" a\tbc \r\n\nx\u{a0}a"), [1, 2, 0, 0, 3, 1]);
    assert_eq!(v.decode(&[1, 2, 0, 0, 3, 1, 99]), "a bc\n\n<unk> a");
    assert_eq!((v.eos(), v.unk(), v.len()), (Some(0), Some(3), 4));
    assert_eq!(v.encode_word("zzz"), Some(3));
    let without = vocab(&["a"], Level::Word, false, false);
    assert_eq!(without.encode("a b\na"), [0, 0]);
    assert!(Vocab::new(vec!["a".into(), "a".into()], v.cutting()).is_none());
}

#[test]
fn characters_and_back() {
    let v = vocab(&["a", "é", " ", "\n", "\r"], Level::Char, true, false);
    assert_eq!(v.encode("a é\r\né\r"), [0, 2, 1, 3, 1, 4]);
    assert_eq!(v.decode(&v.encode("a é\né")), "a é\né");
    let treebank = vocab(&["a", "_", "\n"], Level::Char, true, true);
    assert_eq!(treebank.encode("  a a  \n a\n\n"), [0, 1, 0, 2, 0, 2, 2]);
    assert_eq!(treebank.decode(&[0, 1, 0, 2]), "a a\n");
    let joined = vocab(&["a", " "], Level::Char, false, false);
    assert_eq!(joined.encode("a\na"), [0, 1, 0]);
}

#[test]
fn bytes_and_back() {
    let v = Vocab::bytes(true);
    assert_eq!(v.encode("é\r\n"), [0xc3, 0xa9, 13, 10]);
    assert_eq!(v.decode(&[0xc3, 0xa9, 0xff]), "é\u{fffd}");
    assert_eq!((v.len(), v.eos(), v.unk()), (256, Some(10), None));
    // The stand-ins that byte-level tokenizers have used since GPT-2.
    assert_eq!([v.word(0), v.word(10), v.word(32), v.word(65), v.word(0xad)], ["Ā", "Ċ", "Ġ", "A", "Ń"]);
}

#[test]
fn json_keeps_everything() {
    for v in [
        vocab(&["<eos>", "a\"\\", "é\u{1f600}", "<unk>"], Level::Word, true, false),
        vocab(&["b", "a"], Level::Word, false, false),
        vocab(&["\n", "a", "_"], Level::Char, true, true),
        vocab(&["a", "b", "<unk>"], Level::Char, false, false),
        vocab(&["a", "b", "_"], Level::Char, false, true),
        Vocab::bytes(true),
    ] {
        let back = Vocab::from_tokenizer_json(&v.to_tokenizer_json()).expect("ours");
        assert_eq!(back, v);
        assert_eq!(back.hash(), v.hash());
    }
    let hashes: std::collections::HashSet<String> = [
        vocab(&["ab", "c"], Level::Word, true, false),
        vocab(&["a", "bc"], Level::Word, true, false),
        vocab(&["ab", "c"], Level::Word, false, false),
        vocab(&["ab", "c"], Level::Char, true, false),
    ]
    .iter()
    .map(Vocab::hash)
    .collect();
    assert_eq!(hashes.len(), 4);
}

#[test]
fn other_json_is_refused() {
    let model =
        |vocab: &str| format!(r#"{{"pre_tokenizer":{{"type":"WhitespaceSplit"}},"model":{{"vocab":{vocab}}}}}"#);
    let read = |text: &str| Vocab::from_tokenizer_json(text).map_err(|e| e.to_string());
    assert!(read(&model(r#"{"a":0,"b":1}"#)).is_ok());
    for (text, part) in [
        (String::new(), "EOF"),
        ("[]".into(), "expected struct"),
        (model("{}"), "empty"),
        (model(r#"{"a":0,"b":0}"#), "the number 0, but 2 words must have the numbers 0 to 1"),
        (model(r#"{"a":1}"#), r#""a" has the number 1"#),
        (model(r#"{"a":18446744073709551615}"#), "18446744073709551615"),
        (model(r#"{"a":-1}"#), "invalid value"),
        (model(r#"{"a":0}"#).replace("WhitespaceSplit", "Metaspace"), "pre_tokenizer is Metaspace"),
        (model(r#"{"a":0}"#).replace("WhitespaceSplit", "ByteLevel"), "1 words long"),
        ("[".repeat(100_000), "invalid type"),
        (format!("{{\"x\":{}", "[".repeat(100_000)), "EOF"), // skipped without recursion
    ] {
        let error = read(&text).expect_err(part);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn nothing_dangerous_is_printable() {
    assert_eq!(printable("a\x1b[31m\u{202e}é\n\u{9b}"), "a\\u{1b}[31m\\u{202e}é\\n\\u{9b}");
}

proptest! {
    #[test]
    fn no_json_panics(text in "\\PC{0,60}", vocab in prop::collection::hash_map("\\PC{0,4}", any::<i64>(), 0..6),
                      kind in "(WhitespaceSplit|Split|ByteLevel|x)") {
        let _ = Vocab::from_tokenizer_json(&text);
        let json = json!({"pre_tokenizer": {"type": kind}, "model": {"vocab": vocab}, "normalizer": {"normalizers": [text]}});
        if let Ok(v) = Vocab::from_tokenizer_json(&json.to_string()) {
            let _ = v.decode(&v.encode(&text));
        }
    }

    /// Chunks are invisible: wherever a text is cut, its symbols and their places are the same.
    #[test]
    fn chunks_do_not_matter(text in "[ab_\u{e9}\u{a0} \r\n]{0,40}", at in 0usize..40, eos: bool, underscores: bool, chars: bool) {
        let level = if chars { Level::Char } else { Level::Word };
        let cut = |parts: &[&str]| {
            let mut cutter = Cutter::new(Cutting { level, eos, underscores }, usize::MAX);
            let mut symbols = Vec::new();
            let mut sink = |symbol: Symbol<'_>, at: u64| {
                symbols.push((format!("{symbol:?}"), at));
                true
            };
            let mut place = 0;
            for part in parts {
                cutter.feed(part, place, &mut sink);
                place += part.len() as u64;
            }
            cutter.finish(true, &mut sink);
            symbols
        };
        let at = (0..=text.len().min(at)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        prop_assert_eq!(cut(&[&text]), cut(&[&text[..at], &text[at..]]));
    }

    /// The slow twin: white space by the standard library.
    #[test]
    fn words_are_those_of_the_standard_library(text in "[ab\u{e9}\u{a0}\u{2003} \t\r\n]{0,40}") {
        let v = vocab(&["<unk>", "<eos>", "a", "b", "ab", "é"], Level::Word, true, false);
        let mut slow = Vec::new();
        for (i, line) in text.split('\n').enumerate() {
            if i > 0 {
                slow.push(1);
            }
            slow.extend(line.split_whitespace().map(|word| v.token(word).unwrap_or(0)));
        }
        prop_assert_eq!(v.encode(&text), slow);
    }
}
