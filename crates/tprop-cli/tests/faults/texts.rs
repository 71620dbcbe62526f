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

/// A gigabyte in one line: at most 2.5 GB of memory. Only with the full numbers, because it needs the disk for it.
#[cfg(target_os = "linux")]
#[test]
fn a_gigabyte_in_one_line() {
    use std::io::Write;
    if !full() {
        return;
    }
    let place = Place::new();
    let mut file = std::io::BufWriter::new(std::fs::File::create(place.join("line")).unwrap());
    let piece = b"the cat sees the dog ".repeat(1000);
    for _ in 0..1_000_000_000 / piece.len() {
        file.write_all(&piece).unwrap();
    }
    drop(file);
    for level in ["byte", "char", "word"] {
        let mut child =
            place.command(&["train", "line", "--level", level, "--hidden", "4", "--dry-run"]).spawn().unwrap();
        let mut most = 0;
        crate::bench::wait_for("the end of reading", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
            most = most.max(line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0));
            child.try_wait().unwrap().is_some()
        });
        assert!(child.wait().unwrap().success(), "{level}");
        assert!(most > 0 && most < 2_500_000, "{level}: {most} KB");
        row("one line of 1 GB", 1, &format!("{level} level, {} MB of memory", most / 1000));
    }
}
