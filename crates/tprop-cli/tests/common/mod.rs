//! Runs the program in a directory of its own.
#![allow(dead_code)] // not every test file uses all of it

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory that vanishes with the test.
pub struct Place(tempfile::TempDir);

/// What a command left.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// The program here, without the user's surroundings.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tprop"));
        command.args(args).current_dir(self.path()).env_remove("TPROP_DATA").env("HOME", self.path());
        command.env_remove("XDG_DATA_HOME").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().expect("started"))
    }

    pub fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().expect("started");
        child.stdin.take().expect("piped").write_all(input).expect("read");
        ran(child.wait_with_output().expect("ended"))
    }

    /// Everything in the directory, in order.
    pub fn files(&self) -> Vec<String> {
        fn walk(dir: &Path, root: &Path, names: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).expect("readable") {
                let path = entry.expect("readable").path();
                names.push(path.strip_prefix(root).expect("inside").display().to_string());
                if path.is_dir() {
                    walk(&path, root, names);
                }
            }
        }
        let mut names = Vec::new();
        walk(self.path(), self.path(), &mut names);
        names.sort();
        names
    }
}

fn ran(output: std::process::Output) -> Ran {
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

impl Ran {
    /// It went well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It was refused with one sentence that has `expected` in it.
    #[track_caller]
    pub fn refused(&self, code: i32, expected: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(expected), "{expected:?} not in {self:?}");
        assert!(!self.err.contains("made a mistake"), "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "{self:?}");
        assert!(self.out.is_empty(), "{self:?}");
    }

    /// One JSON line.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.out).expect("JSON")
    }
}

/// A run that takes a moment: a small model of a small text.
pub const SMALL: [&str; 6] =
    ["synth.tokens=3000", "synth.vocab=60", "model.hidden=8", "train.streams=4", "train.epochs=2", "eval.streams=4"];

/// `train` of the small run, with more arguments.
pub fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train"];
    args.extend(SMALL);
    args.extend(more);
    args
}

/// The hash of names, shapes and bytes of all tensors of a safetensors file.
pub fn tensors_hash(path: &Path) -> String {
    use sha2::Digest;
    let bytes = std::fs::read(path).expect("exported");
    let head = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&bytes[8..8 + head]).expect("a header");
    let mut names: Vec<_> = header.keys().filter(|name| *name != "__metadata__").collect();
    names.sort();
    let mut hash = sha2::Sha256::new();
    for name in names {
        let at = |i: usize| header[name]["data_offsets"][i].as_u64().unwrap() as usize + 8 + head;
        hash.update(format!("{name} {}\n", header[name]["shape"]));
        hash.update(&bytes[at(0)..at(1)]);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
