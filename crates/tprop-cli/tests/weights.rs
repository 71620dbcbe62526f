//! No number moves unearned. Each line of `weights.jsonl` is a short run: its settings, the hash of the weights that it came to, and what
//! its evaluations recorded. A change that moves one of them must say so in CHANGELOG ("numbers move") and write the lines anew:
//!
//! ```text
//! TPROP_WEIGHTS=write cargo test -p tprop-cli --test weights
//! TPROP_WEIGHTS=exact …              records to the last bit, as on the machine and with the C library that wrote the lines
//! TPROP_PROGRAM=path/to/tprop …      another build; with TPROP_RANKS="mpirun -n 3", runs in shares are run on ranks
//! ```
//!
//! Weights are compared to the bit; recorded figures to ten digits, because the C library's logarithms differ in the last ones.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Place, tensors_hash};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What every run has beside its own settings.
const BASE: &str = "synth.tokens=3000 synth.vocab=60 model.hidden=8 train.threads=1";

/// Recorded figures that tell of time, not of numbers.
const TIMES: [&str; 1] = ["seconds"];

fn main_file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/weights.jsonl")
}

/// The evaluations of a record, without times.
fn evaluations(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("record.jsonl")).expect("a record");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events
        .filter(|event| event["event"] == "eval")
        .map(|mut event| {
            let fields = event.as_object_mut().expect("an object");
            fields.retain(|name, _| !TIMES.contains(&name.as_str()));
            event
        })
        .collect()
}

/// Trains by the given settings; the hash of the weights and the evaluations, or what the program said.
fn train(settings: &str, shares: bool) -> Result<(String, Vec<Value>), String> {
    let place = Place::new();
    let program = std::env::var("TPROP_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_tprop").into());
    let ranks = std::env::var("TPROP_RANKS").ok().filter(|_| shares);
    let mut words: Vec<&str> = ranks.iter().flat_map(|ranks| ranks.split_whitespace()).collect();
    words.extend([program.as_str(), "train", "--quiet", "--run", "run"]);
    words.extend(BASE.split(' ').chain(settings.split(' ')));
    let run = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).current_dir(place.path()).output().expect("started");
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    };
    run(&words)?;
    run(&[&program, "export", "run", "--out", "exported"])?;
    Ok((tensors_hash(&place.join("exported/model.safetensors")), evaluations(&place.join("run"))))
}

/// The first recorded figure that differs.
fn differs(name: &str, wanted: &Value, found: &Value, exact: bool) -> Option<String> {
    match (wanted, found) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64()?, b.as_f64()?);
            let near = if exact { a == b } else { (a - b).abs() <= 1e-10 * a.abs().max(b.abs()).max(1e-6) };
            (!near).then(|| format!("{name}: {a} was recorded, {b} is now"))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| differs(&format!("{name}[{i}]"), a, b, exact))
        }
        (Value::Object(a), Value::Object(b)) => a.iter().find_map(|(key, a)| match b.get(key) {
            Some(b) => differs(&format!("{name}.{key}"), a, b, exact),
            None => Some(format!("{name}.{key} is no longer recorded")),
        }),
        (a, b) => (a != b).then(|| format!("{name}: {a} was recorded, {b} is now")),
    }
}

#[test]
fn weights_and_records_are_those_of_before() {
    let mode = std::env::var("TPROP_WEIGHTS").unwrap_or_default();
    let text = std::fs::read_to_string(main_file()).expect("the lines");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.len() >= 60, "{} runs", lines.len());
    let results: Mutex<Vec<(usize, Value, Vec<String>)>> = Mutex::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((i, line)) = lines.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = |key: &str| line[key].as_str().expect("a text");
                    let (name, settings) = (text("name"), text("settings"));
                    let mut moved = Vec::new();
                    let (weights, evals) =
                        train(settings, settings.contains("cluster.shares")).unwrap_or_else(|failure| {
                            moved.push(format!("{name}: {failure}"));
                            Default::default()
                        });
                    if line["weights"] != weights.as_str() {
                        moved.push(format!("{name}: other weights"));
                    }
                    moved.extend(differs(name, &line["evals"], &json!(evals), mode == "exact"));
                    let made = json!({ "name": name, "settings": settings, "weights": weights, "evals": evals });
                    results.lock().unwrap().push((i, made, moved));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(i, ..)| *i);
    if mode == "write" && results.iter().all(|(_, made, _)| made["weights"] != "") {
        let lines: String = results.iter().map(|(_, made, _)| format!("{made}\n")).collect();
        return std::fs::write(main_file(), lines).expect("written");
    }
    let moved: Vec<_> = results.into_iter().flat_map(|(.., moved)| moved).collect();
    assert!(moved.is_empty(), "numbers moved:\n{}", moved.join("\n"));
}
