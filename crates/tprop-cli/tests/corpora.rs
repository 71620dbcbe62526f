//! Texts that are not what a corpus should be: one sentence, exit code 2, nothing left behind.

mod common;

use common::Place;

#[test]
fn hostile_corpora_are_refused_with_one_sentence() {
    let place = Place::new();
    std::fs::create_dir(place.join("folder")).unwrap();
    place.write("folder/train.txt", "a b c\n");
    std::fs::create_dir(place.join("bare")).unwrap();
    place.write("empty", "");
    place.write("newlines", "\n\n\n");
    place.write("byte", "a");
    place.write("short", "a b c d e f g\n".repeat(20));
    place.write("latin1", b"caf\xe9 au lait\n".repeat(50));
    place.write("utf16", b"\xff\xfea\0b\0c\0");
    place.write("nul", b"a b\0c d\n".repeat(50));
    let fifo = place.join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let before = place.files();
    for (source, expected) in [
        ("empty", "empty: the file is empty"),
        ("newlines", "newlines: only white space"),
        ("byte", "byte: 2 tokens, too short"),
        ("short", "train.streams"),
        ("latin1", "latin1: line 1, byte 3: not UTF-8 (0xe9)"),
        ("utf16", "UTF-16"),
        ("nul", "NUL byte"),
        ("missing", "there is no such file or directory"),
        ("folder", "a directory without valid"),
        ("bare", "a directory without train"),
        ("fifo", "must be an ordinary file"),
        ("ptb", "`tprop data get ptb` downloads it"),
        ("/dev/zero", "must be an ordinary file"),
    ] {
        for flag in [&[][..], &["--dry-run"]] {
            place.run(&[&["train", source, "--epochs", "1"], flag].concat()).refused(2, expected);
            assert_eq!(place.files(), before, "{source}");
        }
    }
}

#[test]
fn marks_and_line_ends_of_other_systems_do_not_matter() {
    let place = Place::new();
    let text = "the cat sees the dog\nthe dog sees the cat\n".repeat(60);
    place.write("plain", &text);
    place.write("crlf", text.replace('\n', "\r\n"));
    place.write("bom", format!("\u{feff}{text}"));
    let words = ["--epochs", "1", "--hidden", "4", "--streams", "2", "eval.streams=2", "--quiet"];
    let mut weights = Vec::new();
    for name in ["plain", "crlf", "bom"] {
        let run = format!("run-{name}");
        place.run(&[&["train", name, "--run", &run], &words[..]].concat()).ok();
        weights.push(place.run(&["eval", &run, "--split", "valid", "--json"]).ok().json()["nats"].clone());
    }
    assert_eq!(weights[0], weights[1]);
    assert_eq!(weights[0], weights[2]);
}

#[test]
fn inspect_counts_and_escapes() {
    let place = Place::new();
    place.write("a.txt", "one two two\n\u{1b}[31mred three\n");
    let ran = place.run(&["data", "inspect", "a.txt"]).ok();
    assert!(ran.out.contains("2 lines, 7 word tokens"), "{}", ran.out);
    assert!(!ran.out.contains('\u{1b}'));
    assert_eq!(place.run(&["data", "inspect", "a.txt", "--json"]).ok().json()["distinct"], 5);
    place.run(&["data", "inspect", "none"]).refused(2, "none");
    assert!(place.run(&["data", "list"]).ok().out.contains("wikitext-103"));
    place.run(&["data", "get", "nothing"]).refused(2, "nothing");
}

/// Whatever the text is called, a run's own vocabulary says how it is cut.
#[test]
fn a_model_of_characters_reads_spaces_of_other_texts_as_its_own() {
    let place = Place::new();
    let text = "the cat sees the dog\nthe dog sees the cat\n".repeat(60);
    std::fs::create_dir_all(place.join("data/ptb")).unwrap();
    for split in ["train", "valid", "test"] {
        place.write(&format!("data/ptb/ptb.{split}.txt"), &text);
    }
    place.write("other.txt", &text);
    let words = ["--epochs", "1", "--hidden", "4", "--streams", "2", "eval.streams=2", "--quiet", "--data-dir", "data"];
    place.run(&[&["train", "ptb-char", "--run", "run"], &words[..]].concat()).ok();
    let nats = |more: &[&str]| place.run(&[&["eval", "run", "--json"], more].concat()).ok().json()["nats"].clone();
    assert_eq!(nats(&["--data", "other.txt", "--split", "all"]), nats(&["--split", "test"]));
}

/// A path below the data directory keeps its name, so that a run's settings can be used on another machine.
#[test]
fn a_text_below_the_data_directory_is_known_by_its_name() {
    let place = Place::new();
    std::fs::create_dir_all(place.join("data/mine")).unwrap();
    place.write("data/mine/book.txt", "the cat sees the dog\nthe dog sees the cat\n".repeat(60));
    let words = ["--epochs", "1", "--hidden", "4", "--streams", "2", "eval.streams=2", "--quiet", "--data-dir", "data"];
    place.run(&[&["train", "mine/book.txt", "--run", "run"], &words[..]].concat()).ok();
    let settings = std::fs::read_to_string(place.join("run/settings.toml")).unwrap();
    assert!(settings.contains("source = \"mine/book.txt\""), "{settings}");
    let dir = place.join("data");
    assert!(settings.contains(&format!("dir = \"{}\"", dir.display())), "{settings}");
    // The directory stands in the settings, so nobody has to say it again, wherever they are.
    std::fs::create_dir(place.join("elsewhere")).unwrap();
    let run = place.join("run");
    let mut resume = place.command(&[
        "resume",
        run.to_str().unwrap(),
        "train.epochs=2",
        "--allow-change",
        "train.epochs",
        "--quiet",
    ]);
    let ran = resume.current_dir(place.join("elsewhere")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    place.run(&[&["train", "mine/other.txt", "--run", "run2"], &words[..]].concat()).refused(2, "mine/other.txt");
}
