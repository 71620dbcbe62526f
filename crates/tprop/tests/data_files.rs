//! Corpora from files: what is read, how it is divided, and what hostile inputs come to.

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use tprop::corpus::{Corpus, CorpusConfig, CorpusError, Division, Level, Split, SynthConfig, VocabFrom, inspect, load};

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("inside")).expect("a folder");
        std::fs::write(&path, content).expect("a file");
        path
    }
}

fn config(path: &Path) -> CorpusConfig {
    CorpusConfig { source: Some(path.to_str().expect("UTF-8").to_owned()), ..CorpusConfig::default() }
}

fn read(config: &CorpusConfig) -> Result<Corpus, CorpusError> {
    load(config, &SynthConfig::default())
}

/// The corpus of one file, at word level.
fn one(content: impl AsRef<[u8]>) -> Result<Corpus, CorpusError> {
    let dir = Dir::new();
    read(&config(&dir.file("corpus.txt", content)))
}

fn at(level: Level, content: impl AsRef<[u8]>) -> Result<Corpus, CorpusError> {
    let dir = Dir::new();
    read(&CorpusConfig { level, ..config(&dir.file("corpus.txt", content)) })
}

fn all(corpus: &Corpus) -> Vec<u32> {
    Split::ALL.iter().flat_map(|&split| corpus.tokens(split).iter()).collect()
}

/// One sentence that names the file.
fn refused(corpus: Result<Corpus, CorpusError>, part: &str) -> CorpusError {
    let error = corpus.expect_err(part);
    let text = error.to_string();
    assert!(text.contains(part) && text.contains("corpus.txt"), "{text}");
    assert!(!text.contains('\n') && !text.contains(". ") && !text.ends_with('.'), "one sentence: {text}");
    error
}

#[test]
fn a_directory_of_three_files() {
    for names in [
        ["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"],
        ["wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"],
        ["train.txt", "val.txt", "test.txt"],
        ["train", "dev", "test"],
    ] {
        let dir = Dir::new();
        dir.file(names[0], " b a a\nb a c\n\n");
        dir.file(names[1], "a\n");
        dir.file(names[2], "c z\n");
        let corpus = read(&config(dir.0.path())).expect("a corpus");
        assert_eq!(corpus.division, Division::Files);
        // By falling frequency, then first occurrence; z is in the test split only, so it is unknown.
        assert_eq!(corpus.vocab.words(), ["a", "<eos>", "b", "c", "<unk>"].map(str::to_owned));
        assert_eq!(corpus.vocab.decode(&corpus.train), "b a a\nb a c\n\n");
        assert_eq!((corpus.valid.text(), corpus.test.text()), ((&[0, 1]).into(), (&[3, 4, 1]).into()));
        assert_eq!(corpus.unknown, [0, 0, 1]);
        let everything = read(&CorpusConfig { vocab_from: VocabFrom::All, ..config(dir.0.path()) }).expect("a corpus");
        assert_eq!(everything.vocab.words(), ["<eos>", "a", "b", "c", "z"].map(str::to_owned));
        assert_ne!(everything.fingerprint, corpus.fingerprint);
    }
}

#[test]
fn a_directory_without_a_split() {
    let dir = Dir::new();
    dir.file("corpus.txt/train.txt", "a b\n");
    refused(read(&config(&dir.0.path().join("corpus.txt"))), "without valid");
    dir.file("corpus.txt/valid.txt", "a b\n");
    refused(read(&config(&dir.0.path().join("corpus.txt"))), "without test");
    dir.file("corpus.txt/test.txt", "a\n");
    assert!(read(&config(&dir.0.path().join("corpus.txt"))).is_ok());
    dir.file("corpus.txt/test.txt", " ");
    refused(read(&config(&dir.0.path().join("corpus.txt"))), "only white space");
}

#[test]
fn names_are_looked_up_in_the_data_directory() {
    let dir = Dir::new();
    for folder in ["", "ptb/"] {
        for split in Split::ALL {
            dir.file(&format!("{folder}ptb.{split}.txt"), " the  cat \n sat\n");
        }
    }
    let named = |name: &str, folder: &Path, level| {
        let config = CorpusConfig {
            source: Some(name.into()),
            data_dir: Some(folder.to_owned()),
            level,
            ..CorpusConfig::default()
        };
        read(&config)
    };
    for folder in [dir.0.path().to_owned(), dir.0.path().join("ptb")] {
        let corpus = named("ptb", &folder, Level::Word).expect("found");
        assert_eq!((corpus.name.as_str(), corpus.train.len()), ("ptb", 5));
    }
    let corpus = named("ptb-char", dir.0.path(), Level::Word).expect("found");
    assert_eq!(corpus.vocab.level(), Level::Char);
    let spelt: Vec<&str> = corpus.train.iter().map(|token| corpus.vocab.word(token)).collect();
    assert_eq!(spelt.concat(), "the__cat\nsat\n");
    assert!(matches!(named("ptb-char", dir.0.path(), Level::Byte), Err(CorpusError::Field { .. })));
    let error = named("wikitext-2", dir.0.path(), Level::Word).expect_err("not there").to_string();
    assert!(error.contains("wikitext-2: not found") && error.contains("train.txt"), "{error}");
    assert!(error.contains(dir.0.path().to_str().expect("UTF-8")), "{error}");
    // Any other path: from here, or below the data directory.
    dir.file("mine/book.txt", "a cat sat\n".repeat(20));
    let corpus = named("mine/book.txt", dir.0.path(), Level::Word).expect("found");
    assert_eq!(corpus.train, read(&config(&dir.0.path().join("mine/book.txt"))).expect("found").train);
    assert!(matches!(named("", dir.0.path(), Level::Word), Err(CorpusError::Missing(_))));
    assert!(matches!(named("mine/other.txt", dir.0.path(), Level::Word), Err(CorpusError::Missing(_))));
    let error = named("wikitext-3", dir.0.path(), Level::Word).expect_err("no such set");
    assert!(matches!(&error, CorpusError::Missing(name) if name == "wikitext-3"), "{error}");
}

#[test]
fn text8_has_no_line_ends_and_drops_rare_words() {
    let dir = Dir::new();
    dir.file("text8", format!("{} rare", "one two ".repeat(100)));
    let config = CorpusConfig {
        source: Some("text8".into()),
        data_dir: Some(dir.0.path().to_owned()),
        vocab_from: VocabFrom::All,
        ..CorpusConfig::default()
    };
    let corpus = read(&config).expect("found");
    // A file of another length than the real one is divided like any other.
    assert_eq!((corpus.division, corpus.vocab.eos()), (Division::Tokens, None));
    assert_eq!(corpus.vocab.words(), ["one", "two", "<unk>"].map(str::to_owned));
    let chars = read(&CorpusConfig { source: Some("text8-char".into()), ..config }).expect("found");
    assert_eq!((chars.vocab.level(), chars.vocab.eos()), (Level::Char, None));
}

#[test]
fn text8_is_divided_by_bytes() {
    let dir = Dir::new();
    // 10-byte groups; the byte 99,000,000 is then the start of a group.
    let mut text = b"abcd efghi".repeat(10_000_000);
    text[98_999_999] = b'x';
    dir.file("text8", &text);
    let config = CorpusConfig {
        source: Some("text8".into()),
        data_dir: Some(dir.0.path().to_owned()),
        ..CorpusConfig::default()
    };
    let corpus = read(&config).expect("found");
    assert_eq!(corpus.division, Division::Text8Words);
    // A word belongs to the split in which it begins; words run together over the groups' borders.
    assert_eq!((corpus.train.len(), corpus.valid.len()), (9_900_001, 100_000));
    assert_eq!(corpus.valid, corpus.test);
    drop(corpus);
    let chars = read(&CorpusConfig { source: Some("text8-char".into()), ..config }).expect("found");
    assert_eq!(chars.division, Division::Text8Chars);
    assert_eq!(Split::ALL.map(|split| chars.tokens(split).len()), [90_000_000, 5_000_000, 5_000_000]);
}

#[test]
fn one_file_is_divided_at_line_ends() {
    let corpus = one("a b c\n".repeat(1000)).expect("a corpus");
    assert_eq!(corpus.division, Division::Lines);
    assert_eq!(Split::ALL.map(|split| corpus.tokens(split).len()), [3600, 200, 200]);
    let corpus = one("a b c d e f\nd ".repeat(98)).expect("a corpus");
    assert_eq!(corpus.division, Division::Tokens);
    // A hundred line ends at the very end would leave the test split without a word: cut between tokens instead.
    let corpus = one("a ".repeat(10_000) + &"\n".repeat(100)).expect("a corpus");
    assert_eq!((corpus.division, corpus.test.len()), (Division::Tokens, 505));
    // By tokens nothing is lost either.
    assert_eq!(all(&corpus).len(), 10_100);
}

#[test]
fn cut_offs() {
    let text = "a a a a b b b c c d\n".repeat(20);
    let dir = Dir::new();
    let base = config(&dir.file("corpus.txt", &text));
    let words = |config: CorpusConfig| read(&config).map(|corpus| corpus.vocab.words().join(" "));
    assert_eq!(words(base.clone()).expect("all"), "a b c d <eos>");
    // 18 lines are training text: 18 d.
    assert_eq!(words(CorpusConfig { min_count: Some(18), ..base.clone() }).expect("all"), "a b c d <eos>");
    assert_eq!(words(CorpusConfig { min_count: Some(19), ..base.clone() }).expect("some"), "a b c <eos> <unk>");
    assert_eq!(words(CorpusConfig { max_vocab: Some(5), ..base.clone() }).expect("all"), "a b c d <eos>");
    // c and d together are as frequent as b.
    assert_eq!(words(CorpusConfig { max_vocab: Some(4), ..base.clone() }).expect("some"), "a b <unk> <eos>");
    assert_eq!(words(CorpusConfig { max_vocab: Some(3), ..base.clone() }).expect("some"), "<unk> a <eos>");
    let max = Some(usize::MAX);
    let huge = CorpusConfig { max_vocab: max, max_tokens: max, ..base.clone() };
    assert_eq!(words(huge).expect("all"), "a b c d <eos>");
    for (config, name) in [
        (CorpusConfig { max_vocab: Some(2), ..base.clone() }, "max_vocab = 2"),
        (CorpusConfig { max_tokens: Some(1), ..base.clone() }, "max_tokens = 1"),
        (CorpusConfig { min_count: Some(0), ..base.clone() }, "min_count = 0"),
        (CorpusConfig { min_count: Some(usize::MAX), ..base.clone() }, "min_count = 18446744073709551615"),
    ] {
        let error = words(config).expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
    }
    let slice = read(&CorpusConfig { max_tokens: Some(11), ..base.clone() }).expect("a slice");
    let whole = read(&base).expect("all");
    assert_eq!(
        (slice.train.text(), &slice.valid, &slice.vocab),
        (whole.train.text().part(0..11), &whole.valid, &whole.vocab)
    );
}

#[test]
fn its_own_unk_stays_the_only_one() {
    let dir = Dir::new();
    let base = config(&dir.file("corpus.txt", "<unk> a b c a a\n".repeat(20)));
    let corpus = read(&base).expect("a corpus");
    assert_eq!(corpus.vocab.words().join(" "), "a <unk> b c <eos>");
    assert_eq!(corpus.vocab.unk(), Some(1));
    let corpus = read(&CorpusConfig { max_vocab: Some(3), ..base }).expect("a corpus");
    assert_eq!(corpus.vocab.words().join(" "), "<unk> a <eos>");
    assert_eq!(corpus.unknown.iter().sum::<usize>(), 60);
}

#[test]
fn levels() {
    let text = "Aé \n".repeat(30);
    let corpus = at(Level::Char, &text).expect("characters");
    assert_eq!(corpus.vocab.words(), ["A", "é", " ", "\n"].map(str::to_owned));
    assert_eq!(corpus.vocab.decode(&all(&corpus)), text);
    let corpus = at(Level::Byte, &text).expect("bytes");
    assert_eq!((corpus.vocab.len(), corpus.vocab.unk()), (256, None));
    assert_eq!(all(&corpus), text.bytes().map(u32::from).collect::<Vec<_>>());
}

// The faults, one test each.

#[test]
fn fault_empty() {
    for level in [Level::Word, Level::Char, Level::Byte] {
        refused(at(level, ""), "the file is empty");
    }
}

#[test]
fn fault_one_byte_and_one_token() {
    for level in [Level::Word, Level::Char, Level::Byte] {
        refused(at(level, "a"), "too short to be divided 90/5/5; at least 40 are needed");
    }
    refused(one("word\n"), "2 tokens");
    refused(one("word ".repeat(38)), "39 tokens");
    assert!(one("word ".repeat(39)).is_ok());
    refused(one("\n"), "only white space");
}

#[test]
fn fault_only_newlines() {
    refused(one("\n".repeat(1000)), "only white space");
    refused(one("\r\n \t\r\n"), "only white space");
    refused(at(Level::Char, "\n".repeat(1000)), "only white space");
    // To bytes a newline is a byte like any other.
    assert!(at(Level::Byte, "\n".repeat(1000)).is_ok());
}

#[test]
fn fault_invalid_utf8() {
    let error = refused(one(b"ab c\nd\xff e\n".as_slice()), "line 2, byte 6: not UTF-8 (0xff)");
    assert!(matches!(error, CorpusError::NotUtf8 { line: 2, offset: 6, byte: 0xff, .. }));
    // Cut off in the middle of a character at the end of the file.
    refused(at(Level::Char, b"ab\xc3".as_slice()), "line 1, byte 2: not UTF-8 (0xc3)");
    // Behind the first chunk, with a character across its border.
    let mut long = "é".repeat(200_000).into_bytes();
    long.insert(0, b'\n');
    assert!(at(Level::Char, &long).is_ok());
    long.push(0xe9);
    refused(at(Level::Char, &long), "line 2, byte 400001: not UTF-8 (0xe9)");
    assert!(at(Level::Byte, &long).is_ok());
}

#[test]
fn fault_utf16() {
    let text = "some words in another encoding\n".repeat(20);
    let wide = |bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    for bytes in [wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
        refused(one(&bytes), "UTF-16");
        let little = bytes[1] == 0;
        let mark: &[u8] = if little { b"\xff\xfe" } else { b"\xfe\xff" };
        refused(one([mark, &bytes].concat()), "looks like UTF-16");
        assert!(at(Level::Byte, &bytes).is_ok());
    }
}

#[test]
fn fault_nul() {
    refused(one("a\nb c\0 d\n".repeat(20)), "line 2, byte 5: a NUL byte");
    assert!(at(Level::Byte, "a\0".repeat(50)).is_ok());
}

#[test]
fn fault_byte_order_mark() {
    let plain = one("a b c\n".repeat(50)).expect("a corpus");
    let marked = one("\u{feff}".to_owned() + &"a b c\n".repeat(50)).expect("a corpus");
    assert_eq!(marked.fingerprint, plain.fingerprint);
    refused(one(b"\xef\xbb\xbfa\n\xff".as_slice()), "line 2, byte 5");
}

#[test]
fn fault_carriage_returns() {
    for level in [Level::Word, Level::Char] {
        let plain = at(level, "a b\nc\n".repeat(50)).expect("a corpus");
        let returns = at(level, "a b\r\nc\r\n".repeat(50)).expect("a corpus");
        assert_eq!(returns.fingerprint, plain.fingerprint);
    }
}

#[test]
fn fault_long_lines_and_words() {
    let corpus = one("word ".repeat(1_000_000)).expect("one line");
    assert_eq!((all(&corpus).len(), corpus.vocab.len()), (1_000_001, 2));
    refused(one("\na ".to_owned() + &"x".repeat(1_000_000)), "line 2, byte 3: a word of more than 65536 bytes");
    assert!(one("x".repeat(65_536) + &" a b".repeat(50)).is_ok());
    refused(one("x".repeat(65_537) + &" a b".repeat(50)), "byte 0: a word of more");
    assert!(at(Level::Char, "x".repeat(1_000_000)).is_ok());
}

#[test]
fn fault_many_words() {
    use std::fmt::Write;
    let mut text = String::new();
    for i in 0..1_000_000 {
        writeln!(text, "w{i}").expect("memory");
    }
    let corpus = one(&text).expect("a corpus");
    assert_eq!(corpus.vocab.len(), 900_002);
    assert_eq!(corpus.unknown, [0, 50_000, 50_000]);
}

#[test]
fn fault_one_word_only() {
    let corpus = one("same ".repeat(1000)).expect("a corpus");
    assert_eq!(corpus.vocab.words().join(" "), "same <eos>");
}

#[test]
#[cfg(unix)]
fn fault_pipe_device_directory_missing() {
    let dir = Dir::new();
    let path = dir.0.path().join("corpus.txt");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    refused(read(&config(&path)), "a pipe");
    let error = read(&config(Path::new("/dev/zero"))).expect_err("endless").to_string();
    assert!(error.contains("a device"), "{error}");
    std::fs::remove_file(&path).expect("removed");
    refused(read(&config(&path)), "no such file");
    std::fs::create_dir(&path).expect("a folder");
    refused(read(&config(&path)), "a directory without train");
}

#[test]
#[cfg(unix)]
fn fault_unreadable() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new();
    let path = dir.file("corpus.txt", "a b\n".repeat(100));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).expect("permissions");
    // Root may read everything; then there is nothing to refuse.
    if std::fs::File::open(&path).is_err() {
        refused(read(&config(&path)), "Permission denied");
    }
    // A loop of links cannot be followed by anyone.
    let path = dir.0.path().join("loop/corpus.txt");
    std::fs::create_dir(dir.0.path().join("loop")).expect("a folder");
    std::os::unix::fs::symlink(&path, &path).expect("a link");
    refused(read(&config(&path)), "cannot be read");
}

#[test]
fn fault_changed() {
    let before = one("a b c\n".repeat(100)).expect("a corpus").fingerprint;
    assert_eq!(one("a b c\n".repeat(100)).expect("a corpus").fingerprint, before);
    assert_ne!(one("a b c\n".repeat(99) + "a c b\n").expect("a corpus").fingerprint, before);
}

#[test]
fn inspection() {
    let dir = Dir::new();
    let path = dir.file("corpus.txt", "\u{feff}a b \x1b[31m\n\na \u{202e}c\r\nlast");
    let seen = inspect(&path, Level::Word).expect("text");
    assert_eq!((seen.bytes, seen.lines, seen.tokens, seen.distinct), (26, 4, 10, 6));
    assert_eq!(seen.once, 4);
    assert_eq!(seen.head[..2], [("<eos>".to_owned(), 4), ("a".to_owned(), 2)]);
    assert_eq!(seen.coverage, [(6, 1.0)]);
    assert_eq!(seen.samples, ["a b \\u{1b}[31m", "a \\u{202e}c", "last"]);
    let bytes = inspect(&path, Level::Byte).expect("bytes");
    assert_eq!((bytes.tokens, bytes.lines), (26, 4));
    let long = dir.file("long.txt", "x".repeat(400) + "\n" + &"y\n".repeat(1000));
    let seen = inspect(&long, Level::Char).expect("text");
    assert_eq!(seen.samples.len(), 5);
    assert_eq!(seen.samples[0].chars().count(), 161);
    let skewed = dir.file("skewed.txt", "a ".repeat(89) + "b c d e f g h i j k\n");
    assert_eq!(inspect(&skewed, Level::Word).expect("text").coverage, [(10, 0.98), (12, 1.0)]);
    let empty = inspect(&dir.file("empty.txt", ""), Level::Word).expect("nothing is fine here");
    assert_eq!((empty.tokens, empty.distinct, empty.coverage.len()), (0, 0, 0));
}

#[test]
fn the_built_in_language() {
    let synth = SynthConfig { vocab: 200, tokens: 5_000, seed: 4 };
    let make = |config: CorpusConfig| load(&config, &synth);
    let corpus = make(CorpusConfig::default()).expect("a corpus");
    assert_eq!((corpus.name.as_str(), corpus.division, corpus.vocab.len()), ("built-in", Division::Generated, 200));
    assert!(corpus.train.len() >= 5000 && corpus.valid.len() >= 1000 && corpus.test.len() >= 1000);
    let best = corpus.reference(Split::Valid).expect("it is ours");
    assert!(1.0 < best.best && best.best < best.forget_20 && best.forget_5 < best.bigram && best.bigram < best.unigram);
    assert_eq!(make(CorpusConfig::default()).expect("again").fingerprint, corpus.fingerprint);
    // Read in another way it is still the same text, but no longer the language whose best reader is known.
    let text = corpus.vocab.decode(&corpus.valid);
    for config in [
        CorpusConfig { level: Level::Char, ..CorpusConfig::default() },
        CorpusConfig { level: Level::Byte, ..CorpusConfig::default() },
    ] {
        let other = make(config).expect("a corpus");
        assert_eq!(other.vocab.decode(&other.valid), text);
        assert!(other.reference.is_none());
    }
    let small = make(CorpusConfig { max_vocab: Some(50), ..CorpusConfig::default() }).expect("a corpus");
    assert_eq!((small.vocab.len(), small.train.len(), small.reference.is_none()), (50, corpus.train.len(), true));
    let slice = make(CorpusConfig { max_tokens: Some(100), ..CorpusConfig::default() }).expect("a corpus");
    assert_eq!(slice.train.text(), corpus.train.text().part(0..100));
    for (synth, name) in [
        (SynthConfig { vocab: 49, ..synth.clone() }, "vocab = 49"),
        (SynthConfig { vocab: usize::MAX, ..synth.clone() }, "vocab"),
        (SynthConfig { tokens: 0, ..synth.clone() }, "tokens = 0"),
        (SynthConfig { tokens: usize::MAX, ..synth.clone() }, "tokens"),
    ] {
        let error = load(&CorpusConfig::default(), &synth).expect_err(name).to_string();
        assert!(error.contains(name) && error.contains("must be from"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the bytes, the answer is a corpus that is consistent with itself, or an error.
    #[test]
    fn no_bytes_panic(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            "[ab<>unk\u{e9}\u{feff} \r\n]{0,300}".prop_map(String::into_bytes),
        ],
        level in prop_oneof![Just(Level::Word), Just(Level::Char), Just(Level::Byte)],
        eos in prop::option::of(any::<bool>()),
        min_count in prop::option::of(0usize..5),
        max_vocab in prop::option::of(0usize..10),
        max_tokens in prop::option::of(0usize..100),
        from_all: bool,
    ) {
        let dir = Dir::new();
        let vocab_from = if from_all { VocabFrom::All } else { VocabFrom::Train };
        let path = dir.file("corpus.txt", &bytes);
        let config = CorpusConfig { level, eos, min_count, max_vocab, max_tokens, vocab_from, ..config(&path) };
        let _ = inspect(&path, level);
        if let Ok(corpus) = read(&config) {
            let tokens = all(&corpus);
            prop_assert!(tokens.iter().all(|&token| (token as usize) < corpus.vocab.len()));
            prop_assert!(Split::ALL.iter().all(|&split| corpus.tokens(split).len() >= 2));
            prop_assert!(level == Level::Byte || max_vocab.is_none_or(|most| corpus.vocab.len() <= most));
            let again = tprop::vocab::Vocab::from_tokenizer_json(&corpus.vocab.to_tokenizer_json());
            let again = again.expect("ours");
            prop_assert_eq!(again.words(), corpus.vocab.words());
            // The same text through the vocabulary gives the same tokens.
            if level != Level::Byte && max_tokens.is_none() {
                let text = std::str::from_utf8(&bytes).expect("it was read as text");
                let text = text.strip_prefix('\u{feff}').unwrap_or(text);
                let encoded = corpus.vocab.encode(text);
                prop_assert!(tokens == encoded || tokens[..tokens.len() - 1] == encoded[..]);
            }
        }
    }
}
