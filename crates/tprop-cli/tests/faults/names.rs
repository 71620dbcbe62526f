//! Names with characters in them that a terminal obeys, and things in the place of files.
#![cfg(unix)]

use std::time::{Duration, Instant};

use crate::bench::{row, text};
use crate::common::{Place, Ran};

/// Ends everything that waits for a pipe.
#[track_caller]
fn run(place: &Place, args: &[&str]) -> Ran {
    let mut child = place.command(args).spawn().unwrap();
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > Duration::from_secs(100) {
            child.kill().unwrap();
            panic!("{args:?} waits");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn no_control_character_reaches_a_terminal() {
    let place = Place::new();
    // Characters that ring, colour, move the cursor and clear the line; also the one-byte forms of these, and in tokens.
    let evil = "\u{1b}[31m\u{7}\r\u{9b}2J\u{7f}";
    let name = |what: &str| format!("{what}{evil}");
    let words: Vec<String> = text(4000).split(' ').map(|word| format!("{word}\u{1b}\u{7}\u{9b}")).collect();
    let (file, dir, missing) = (name("text"), name("run"), name("missing"));
    place.write(&file, words.join(" "));
    place.write(&name("bad.toml"), format!("x{evil} = 1"));
    place.write(&name("sweep.toml"), format!("[grid]\n\"{}\" = [1]\n", name("k").escape_default()));
    let train =
        ["train", &file, "--run", &dir, "model.hidden=6", "train.epochs=1", "eval.streams=2", "train.streams=2"];
    let (chars, bytes) = (name("chars"), name("bytes"));
    let level = |run, level| [&["train", &file, "--run", run], &train[4..], &[level][..]].concat();
    let (bad, sweep, flag) = (name("bad.toml"), name("sweep.toml"), format!("--flag{evil}"));
    let (key, unknown) = (format!("model.{evil}=3"), format!("{evil}=3"));
    let commands: Vec<Vec<&str>> = vec![
        train.to_vec(),
        level(&chars, "data.level=char"),
        level(&bytes, "data.level=byte"),
        train.to_vec(),
        vec!["train", &missing],
        vec!["train", "--config", &bad],
        vec!["train", &key],
        vec!["train", &unknown],
        vec!["train", "--from", &missing],
        vec!["train", &file, "--dry-run"],
        vec!["resume", &dir],
        vec!["resume", &missing],
        vec!["resume", &dir, &file],
        vec!["eval", &dir],
        vec!["eval", &dir, "--json"],
        vec!["eval", &dir, "--data", &missing],
        vec!["eval", &dir, "--data", &file, "--exact"],
        vec!["eval", &dir, "--checkpoint", &missing],
        vec!["generate", &dir, "--prompt", &file],
        vec!["generate", &chars, "--tokens", "300"],
        vec!["generate", &bytes, "--tokens", "300", "--temperature", "3"],
        vec!["generate", &missing],
        vec!["score", &dir, &file, "--tokens"],
        vec!["score", &dir, &file, "--json", "--tokens"],
        vec!["score", &dir, &missing],
        vec!["export", &dir, "--out", "out"],
        vec!["export", &dir, "--out", &file],
        vec!["import", "out", "--run", &dir],
        vec!["import", &missing, "--run", "in"],
        vec!["import", "out", "--run", &chars],
        vec!["report", &dir],
        vec!["report", &missing],
        vec!["data", "inspect", &file],
        vec!["data", "inspect", &file, "--json"],
        vec!["data", "get", &missing],
        vec!["data", "list", "--data-dir", &missing],
        vec!["sweep", &sweep],
        vec!["sweep", &missing],
        vec!["reproduce", &missing],
        vec!["settings", &missing],
        vec!["bench", &unknown],
        vec!["plan", &unknown],
        vec![&flag],
        vec!["train", &flag],
        vec![&missing],
        vec!["completions", &missing],
    ];
    let raw = |text: &str| text.chars().find(|c| c.is_control() && *c != '\n' && *c != '\t');
    for args in &commands {
        let ran = place.run(args);
        assert_eq!(raw(&ran.out), None, "{args:?}: {ran:?}");
        assert_eq!(raw(&ran.err), None, "{args:?}: {ran:?}");
        assert!(!ran.err.contains("made a mistake"), "{args:?}: {ran:?}");
        if ran.out.starts_with('{') {
            ran.out.lines().for_each(|line| drop(serde_json::from_str::<serde_json::Value>(line).expect("JSON")));
        }
    }
    // Files that are meant to be read on a terminal.
    let mut files = 0;
    for run in [&dir, &chars, &bytes] {
        let sample = std::fs::read_to_string(place.join(run).join("sample.txt")).unwrap();
        assert_eq!(raw(&sample), None, "{sample:?}");
        files += 1;
    }
    for path in place.files().iter().filter(|path| path.ends_with(".md") || path.ends_with(".csv")) {
        assert_eq!(raw(&std::fs::read_to_string(place.join(path)).unwrap()), None, "{path:?}");
        files += 1;
    }
    row("control characters in names and tokens", commands.len() as u64, &format!("0 raw ones; nor in {files} files"));
}

/// A pipe that nobody writes to, a device that never ends, a directory.
#[test]
fn what_is_no_file_is_refused_everywhere() {
    let place = Place::new();
    place.write("text.txt", text(4000));
    let small = ["model.hidden=6", "train.epochs=1", "eval.streams=2", "train.streams=2"];
    run(&place, &[&["train", "text.txt", "--run", "run"], &small[..]].concat()).ok();
    run(&place, &["export", "run", "--out", "out"]).ok();
    assert!(std::process::Command::new("mkfifo").arg(place.join("pipe")).status().unwrap().success());
    std::fs::create_dir(place.join("folder")).unwrap();
    let mut n = 0;
    for other in ["pipe", "folder", "/dev/zero"] {
        let mut refused = |args: &[&str], codes: &[i32]| {
            let ran = run(&place, args);
            assert!(codes.contains(&ran.code), "{other}: {args:?}: {ran:?}");
            assert_eq!(ran.err.trim_end().lines().count(), 1, "{other}: {args:?}: {ran:?}");
            n += 1;
        };
        for args in [
            &["train", other, "--run", "new"][..],
            &["train", "--config", other],
            &["eval", "run", "--data", other],
            &["score", "run", other],
            &["data", "inspect", other],
            &["sweep", other],
        ] {
            // A directory may be a data set; this one is empty.
            refused(args, &[2]);
        }
        // In the place of each file that commands read.
        let roles: [(&str, &[&str], &[i32]); 10] = [
            ("run/settings.toml", &["resume", "run"], &[2]),
            ("run/settings.toml", &["eval", "run"], &[2]),
            ("run/tokenizer.json", &["eval", "run"], &[2]),
            ("run/tokenizer.json", &["generate", "run"], &[2]),
            ("run/record.jsonl", &["resume", "run", "train.epochs=2", "--allow-change", "train.epochs"], &[2]),
            ("run/sessions.jsonl", &["resume", "run"], &[2]),
            ("run/checkpoints/best.safetensors", &["eval", "run"], &[0, 4]),
            ("out/config.json", &["import", "out", "--run", "new"], &[2]),
            ("out/model.safetensors", &["import", "out", "--run", "new"], &[2]),
            ("out/tokenizer.json", &["import", "out", "--run", "new"], &[2]),
        ];
        for (file, args, codes) in roles {
            let (path, away) = (place.join(file), place.join("away"));
            std::fs::rename(&path, &away).unwrap();
            std::os::unix::fs::symlink(place.path().join(other), &path).unwrap();
            if codes.contains(&0) {
                let ran = run(&place, args);
                assert!(codes.contains(&ran.code), "{other} as {file}: {ran:?}");
            } else {
                refused(args, codes);
            }
            std::fs::remove_file(&path).unwrap();
            std::fs::rename(&away, &path).unwrap();
        }
        assert!(!place.join("new").exists());
    }
    run(&place, &["report", "run"]).ok();
    row("pipe, directory or device where a file is expected", n, "exit 2");
}
