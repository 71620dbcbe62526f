//! Readers of what comes from outside: whatever the bytes, no panic, and never more memory than twice the file and 64 MB.
#![allow(unsafe_code)] // an allocator can only be written so

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use proptest::prelude::*;
use tprop::checkpoint::{self, Snapshot, SnapshotWriter};
use tprop::corpus::{self, CorpusConfig, Level, SynthConfig};
use tprop::params::Visit;
use tprop::record;
use tprop::vocab::Vocab;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn grown(size: usize) {
    PEAK.fetch_max(LIVE.fetch_add(size, Relaxed) + size, Relaxed);
}

// SAFETY: every request goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's word.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's word.
        unsafe { System.dealloc(at, layout) }
    }
    // Large blocks are moved by the system without a second copy.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Relaxed);
        grown(size);
        // SAFETY: the caller's word.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counters are the process's, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Reads a file and holds the reader to its limit. Returns what it said.
#[track_caller]
fn within_limit<T>(what: &str, path: &Path, read: impl FnOnce(&Path) -> T) -> T {
    let size = std::fs::metadata(path).unwrap().len() as usize;
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = read(path);
    let taken = PEAK.load(Relaxed) - before;
    let limit = 2 * size + (64 << 20);
    assert!(taken <= limit, "{what}: {taken} bytes for a file of {size}, more than {limit}");
    result
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 7);
    bytes
}

const META: &str =
    r#""__metadata__":{"format":"1","sha256":"0000000000000000000000000000000000000000000000000000000000000000""#;

#[test]
fn checkpoints_take_what_they_may() {
    let _turn = alone();
    let files = Files::new();
    let read = |what: &str, bytes: Vec<u8>| {
        let path = files.write("step-0000000001.safetensors", bytes);
        within_limit(what, &path, |path| checkpoint::read(path).map(drop).map_err(|e| e.to_string()))
    };
    // A good one: the tensors go straight to their places.
    let mut good = Snapshot::default();
    SnapshotWriter(&mut good).tensor("big", 5_000, 4_000, &mut vec![0.5f32; 20_000_000]);
    let bytes = good.encode();
    drop(good);
    read("a large tensor", bytes).unwrap();
    // Headers that cost more than they weigh.
    let tensors: String =
        (0..400_000).map(|i| format!(r#","t{i}":{{"dtype":"F32","shape":[],"data_offsets":[0,0]}}"#)).collect();
    read("many tensors", safetensors(&format!("{{{META}}}{tensors}}}"), 0)).unwrap_err();
    let strings: String = (0..700_000).map(|i| format!(r#","{i}":"""#)).collect();
    read("many strings", safetensors(&format!("{{{META}{strings}}}}}"), 0)).unwrap_err();
    let deep =
        format!(r#"{{{META}}},"t":{{"dtype":"F32","shape":[{}0],"data_offsets":[0,0]}}}}"#, "0,".repeat(8_000_000));
    read("many dimensions", safetensors(&deep, 0)).unwrap_err();
    let nested = format!("{{{META}}},\"t\":{}", "[".repeat(1_000_000));
    read("nested", safetensors(&nested, 0)).unwrap_err();
    let huge =
        format!(r#"{{{META}}},"t":{{"dtype":"F64","shape":[{0},{0}],"data_offsets":[0,{1}]}}}}"#, 1u64 << 33, u64::MAX);
    read("larger than the file", safetensors(&huge, 100)).unwrap_err();
    read("a header of any length", u64::MAX.to_le_bytes().to_vec()).unwrap_err();
    read("a long header", [(30u64 << 20).to_le_bytes().to_vec(), vec![b' '; 1000]].concat()).unwrap_err();
}

#[test]
fn records_take_what_they_may() {
    let _turn = alone();
    let files = Files::new();
    let read = |what: &str, text: String| {
        let path = files.write("record.jsonl", text);
        within_limit(what, &path, |path| record::read(path).map(|events| events.len()).map_err(|e| e.to_string()))
    };
    let step = r#"{"event":"step","epoch":1,"step":2,"tokens":3,"seconds":0.5,"nats":1.5,"norm":0.5,"rate":0.05,"tokens_per_s":1.5}"#;
    assert_eq!(read("steps", format!("{step}\n").repeat(200_000)), Ok(200_000));
    let saved = r#"{"event":"checkpoint","step":0,"file":""}"#;
    let _ = read("the shortest lines", format!("{saved}\n").repeat(1_000_000));
    assert!(read("one line", "x".repeat(60 << 20)).unwrap_err().contains("line 1: longer than any event"));
    let eval = |positions: &str| {
        format!(
            r#"{{"event":"eval","epoch":1,"step":1,"tokens":1,"seconds":1,"train_ppl":1,"window_ppl":1,"valid_ppl":1,"rate":1,"best":true,"window_ppl_by_position":[{positions}0]}}"#
        )
    };
    let dense = format!("{}\n", eval(&"0,".repeat(1_500_000)));
    assert!(read("many positions", dense.repeat(10)).unwrap_err().contains("more events than its bytes can hold"));
    assert_eq!(read("positions", format!("{}\n", eval(&"12.345678901234,".repeat(20))).repeat(20_000)), Ok(20_000));
    // A run that was stopped before its first evaluation has no best figure.
    let end = r#"{"event":"end","reason":"stopped","epoch":1,"step":1,"tokens":1,"seconds":1,"best_epoch":0,"best_valid_ppl":null,"test_ppl":null}"#;
    assert_eq!(read("no best", format!("{end}\n")), Ok(1));
}

#[test]
fn vocabularies_take_what_they_may() {
    let _turn = alone();
    let files = Files::new();
    let read = |what: &str, text: String| {
        let path = files.write("tokenizer.json", text);
        within_limit(what, &path, |path| {
            Vocab::read_tokenizer_json(std::fs::File::open(path).unwrap()).map(|v| v.len()).map_err(|e| e.to_string())
        })
    };
    let words = |n: usize| (0..n).map(|i| format!("\"{i:x}\":{}", n - 1 - i)).collect::<Vec<_>>().join(",");
    let file =
        |words: &str| format!(r#"{{"pre_tokenizer":{{"type":"WhitespaceSplit"}},"model":{{"vocab":{{{words}}}}}}}"#);
    assert_eq!(read("many words", file(&words(1_000_000))), Ok(1_000_000));
    read("one number for all", file(&(0..200_000).map(|i| format!("\"{i}\":0")).collect::<Vec<_>>().join(",")))
        .unwrap_err();
    for beside in ["normalizer", "pre_tokenizer", "decoder", "added_tokens"] {
        let text = format!(r#"{{"{beside}":[{}0],"model":{{"vocab":{{"a":0}}}}}}"#, "0,".repeat(10_000_000));
        read(beside, text).unwrap_err();
    }
    let steps = format!(
        r#"{{"normalizer":{{"normalizers":[{}{{}}]}},"model":{{"vocab":{{"a":0}}}}}}"#,
        "{},".repeat(3_000_000)
    );
    read("many normalizers", steps).unwrap_err();
}

#[test]
fn corpora_take_what_they_may() {
    let _turn = alone();
    let files = Files::new();
    let read = |what: &str, level: Level, text: String| {
        let path = files.write("text", text);
        within_limit(what, &path, |path| {
            let source = Some(path.to_str().unwrap().to_owned());
            let config = CorpusConfig { source, level, ..CorpusConfig::default() };
            corpus::load(&config, &SynthConfig::default()).map(|c| c.train.len()).map_err(|e| e.to_string())
        })
    };
    read("short words", Level::Word, "a b ".repeat(2_000_000)).unwrap();
    read("one line of bytes", Level::Byte, "abcd".repeat(2_500_000)).unwrap();
    read("one line of characters", Level::Char, "abcd".repeat(2_500_000)).unwrap();
    read("one word", Level::Word, "abcd".repeat(5_000_000)).unwrap_err();
    read("all words new", Level::Word, (0..300_000).map(|i| format!("{i:x} ")).collect()).unwrap();
}

/// A good file of each kind, to be damaged.
fn good(kind: usize) -> Vec<u8> {
    match kind {
        0 => {
            let mut snapshot = Snapshot::default();
            let mut writer = SnapshotWriter(&mut snapshot);
            writer.tensor("a.weight", 3, 4, &mut [0.25f32; 12]);
            Visit::<f32>::count(&mut writer, "steps", &mut 17);
            snapshot.encode()
        }
        1 => b"{\"event\":\"rate\",\"step\":1,\"rate\":0.5,\"reason\":\"x\"}\n".repeat(3),
        2 => {
            let config = CorpusConfig::default();
            let synth = SynthConfig { tokens: 1000, vocab: 50, ..SynthConfig::default() };
            corpus::load(&config, &synth).unwrap().vocab.to_tokenizer_json().into_bytes()
        }
        _ => "the cat sees the dog\n".repeat(20).into_bytes(),
    }
}

fn read(kind: usize, path: &Path) {
    match kind {
        0 => drop(checkpoint::read(path)),
        1 => drop(record::read(path)),
        2 => drop(Vocab::read_tokenizer_json(std::fs::File::open(path).unwrap())),
        _ => {
            for level in [Level::Word, Level::Char, Level::Byte] {
                let source = Some(path.to_str().unwrap().to_owned());
                let config = CorpusConfig { source, level, ..CorpusConfig::default() };
                drop(corpus::load(&config, &SynthConfig::default()));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Good files of every kind with parts replaced, removed and repeated, and plain noise.
    #[test]
    fn no_reader_panics(
        kind in 0usize..4,
        noise in prop::collection::vec(any::<u8>(), 0..200),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..20, prop::collection::vec(any::<u8>(), 0..9)), 0..4),
        plain in any::<bool>(),
    ) {
        let _turn = alone();
        let files = Files::new();
        let mut bytes = if plain { noise } else { good(kind) };
        for (at, length, with) in changes {
            let at = at.index(bytes.len() + 1);
            let end = bytes.len().min(at + length);
            bytes.splice(at..end, with);
        }
        let path = files.write("file", bytes);
        within_limit("any bytes", &path, |path| read(kind, path));
    }
}
