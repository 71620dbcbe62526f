//! Texts that are hard to read; `corpora.rs` has the ordinary refusals.

use crate::bench::{full, row};
use crate::common::Place;

const SMALL: [&str; 7] = ["--hidden", "4", "--streams", "2", "--epochs=1", "eval.streams=2", "--quiet"];

#[test]
fn texts_with_one_word_many_words_and_one_line() {
    let place = Place::new();
    let train = |file: &str, more: &[&str]| {
        let run = format!("run-{file}");
        let _ = std::fs::remove_dir_all(place.join(&run));
        place.run(&[&["train", file, "--run", &run], &SMALL[..], more].concat())
    };
    // One token, and one word again and again.
    place.write("token", "word");
    train("token", &[]).refused(2, "too short");
    place.write("word", "word ".repeat(500));
    let ran = train("word", &["bptt.window=5"]).ok();
    assert!(ran.out.contains("1.0"), "{ran:?}");
    // Every word is new.
    let n = if full() { 1_000_000 } else { 20_000 };
    let words: String = (0..n).map(|i| format!("w{i}{}", if i % 10 == 9 { "\n" } else { " " })).collect();
    place.write("words", words);
    train("words", &["bptt.window=2", "data.max_vocab=100"]).ok();
    // One long line, in characters and in bytes.
    let line = "the cat sees the dog ".repeat(if full() { 50_000 } else { 2_000 });
    place.write("line", &line);
    for level in ["char", "byte", "word"] {
        train("line", &["--level", level]).ok();
    }
    // Not ours to read (root may read everything).
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let path = place.write("closed", "a b c\n".repeat(100));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
        if std::fs::read(&path).is_err() {
            train("closed", &[]).refused(2, "closed: cannot be read");
        }
    }
    row("texts: one token, one word, all words new, one line, unreadable", 5, "read or refused in one sentence");
}
