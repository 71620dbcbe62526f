//! The power is cut. What a disk then has is known only as far as it was synced: of everything behind that, any part may be there and
//! any part not, in any order, and files may have their length but zeros for their bytes.
//!
//! Each command is run once with all its writes, syncs, renames and removals recorded (`TPROP_TRACE`, see `tprop::file`). Then, for many
//! moments of that list, what the disk may have is put in its place, and whoever comes back types the command again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tprop::rng::Draws;

use crate::bench::{Left, left, place, row, same, times, train};
use crate::common::Place;

/// An operation as it was recorded.
#[derive(Debug)]
enum Operation {
    Create(PathBuf),
    MakeDir(PathBuf),
    Write(PathBuf, usize, Vec<u8>),
    Cut(PathBuf, usize),
    Sync(PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

fn operations(trace: &Path) -> Vec<Operation> {
    let text = std::fs::read_to_string(trace).unwrap();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let operation = |line: &str| {
        let parts: Vec<&str> = line.split('\t').collect();
        let path = PathBuf::from(parts[1]);
        match parts[0] {
            "create" => Operation::Create(path),
            "mkdir" => Operation::MakeDir(path),
            "write" => {
                Operation::Write(path, parts[2].parse().unwrap(), parts[3].as_bytes().chunks(2).map(byte).collect())
            }
            "cut" => Operation::Cut(path, parts[2].parse().unwrap()),
            "sync" => Operation::Sync(path),
            "rename" => Operation::Rename(path, parts[2].into()),
            "remove" => Operation::Remove(path),
            other => panic!("{other}"),
        }
    };
    text.lines().map(operation).collect()
}

/// A change of a file's bytes.
#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(at, new) => {
                bytes.resize(bytes.len().max(at + new.len()), 0);
                bytes[*at..at + new.len()].copy_from_slice(new);
            }
            Change::Cut(length) => bytes.resize(*length, 0),
        }
    }
}

/// A change of a directory's names: what no longer has a name, and what has one now.
#[derive(Clone, Debug)]
struct Naming {
    gone: Option<PathBuf>,
    new: Option<(PathBuf, usize)>,
}

type Names = BTreeMap<PathBuf, usize>;

fn rename(names: &mut Names, naming: &Naming) {
    if let Some(gone) = &naming.gone {
        names.remove(gone);
    }
    if let Some((path, node)) = &naming.new {
        names.insert(path.clone(), *node);
    }
}

/// A file, or a directory.
#[derive(Clone, Debug, Default)]
struct Node {
    directory: bool,
    /// Bytes that are certain.
    synced: Vec<u8>,
    /// Changes of the bytes, or of the names in it, that are not.
    changes: Vec<Change>,
    names: Vec<Naming>,
}

/// What a disk has for certain, and what it may have.
#[derive(Clone, Debug, Default)]
struct Disk {
    nodes: Vec<Node>,
    /// As programs see them.
    now: Names,
    /// As they certainly are.
    synced: Names,
}

impl Disk {
    /// Everything below a folder, all of it certain.
    fn of(root: &Path) -> Self {
        fn walk(disk: &mut Disk, path: &Path) {
            let directory = path.is_dir();
            let synced = if directory { Vec::new() } else { std::fs::read(path).unwrap() };
            disk.nodes.push(Node { directory, synced, ..Node::default() });
            disk.now.insert(path.to_owned(), disk.nodes.len() - 1);
            if directory {
                std::fs::read_dir(path).unwrap().for_each(|entry| walk(disk, &entry.unwrap().path()));
            }
        }
        let mut disk = Self::default();
        walk(&mut disk, root);
        disk.synced = disk.now.clone();
        disk
    }

    fn node(&mut self, path: &Path) -> &mut Node {
        let at = self.now.get(path).copied();
        let at = at.unwrap_or_else(|| {
            // A directory that was not made by way of the library: taken as certain.
            self.nodes.push(Node { directory: true, ..Node::default() });
            let at = self.nodes.len() - 1;
            self.now.insert(path.to_owned(), at);
            self.synced.insert(path.to_owned(), at);
            at
        });
        &mut self.nodes[at]
    }

    fn name(&mut self, directory: &Path, naming: Naming) {
        rename(&mut self.now, &naming);
        self.node(directory).names.push(naming);
    }

    fn make(&mut self, path: &Path, directory: bool) {
        self.nodes.push(Node { directory, ..Node::default() });
        let new = Some((path.to_owned(), self.nodes.len() - 1));
        self.name(path.parent().unwrap(), Naming { gone: None, new });
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Create(path) => self.make(path, false),
            Operation::MakeDir(path) => self.make(path, true),
            Operation::Write(path, at, bytes) => self.node(path).changes.push(Change::Write(*at, bytes.clone())),
            Operation::Cut(path, length) => self.node(path).changes.push(Change::Cut(*length)),
            Operation::Sync(path) => {
                let node = self.node(path);
                let names = std::mem::take(&mut node.names);
                for change in std::mem::take(&mut node.changes) {
                    change.apply(&mut node.synced);
                }
                names.iter().for_each(|naming| rename(&mut self.synced, naming));
            }
            Operation::Rename(from, to) => {
                let node = self.now[from];
                let naming = Naming { gone: Some(from.clone()), new: Some((to.clone(), node)) };
                self.name(to.parent().unwrap(), naming);
            }
            Operation::Remove(path) => {
                self.name(path.parent().unwrap(), Naming { gone: Some(path.clone()), new: None })
            }
        }
    }

    /// What may be there after a cut now: files with their bytes, and directories.
    fn cut(&self, luck: Luck, draws: &Draws, seed: u64) -> (BTreeMap<PathBuf, Vec<u8>>, BTreeSet<PathBuf>) {
        let mut draw = 0;
        let mut lucky = |kind: Kind| {
            draw += 1;
            match luck {
                Luck::None => false,
                Luck::All => true,
                Luck::NamesOnly => kind == Kind::Name,
                Luck::DataOnly => kind == Kind::Data,
                Luck::Any => draws.below(seed + draw, 2) == 0,
            }
        };
        let mut names = self.synced.clone();
        for node in &self.nodes {
            node.names.iter().filter(|_| lucky(Kind::Name)).for_each(|naming| rename(&mut names, naming));
        }
        let (mut files, mut directories) = (BTreeMap::new(), BTreeSet::new());
        for (path, &at) in &names {
            // What lies in a directory without a name is lost with it.
            let above = path
                .ancestors()
                .skip(1)
                .take_while(|dir| self.now.contains_key(*dir) || self.synced.contains_key(*dir));
            if !above.into_iter().all(|dir| names.contains_key(dir)) {
                continue;
            }
            let node = &self.nodes[at];
            if node.directory {
                directories.insert(path.clone());
                continue;
            }
            let mut bytes = node.synced.clone();
            for change in &node.changes {
                if !lucky(Kind::Data) {
                    // Its length alone, with zeros; or nothing of it.
                    if let (Change::Write(at, new), true) = (change, lucky(Kind::Name)) {
                        bytes.resize(bytes.len().max(at + new.len()), 0);
                    }
                    continue;
                }
                let mut change = change.clone();
                if let (Change::Write(_, new), Luck::Any) = (&mut change, luck) {
                    // Torn.
                    draw_cut(new, draws, seed + 1_000 + at as u64);
                }
                change.apply(&mut bytes);
            }
            files.insert(path.clone(), bytes);
        }
        (files, directories)
    }
}

fn write_out((files, directories): &(BTreeMap<PathBuf, Vec<u8>>, BTreeSet<PathBuf>)) {
    directories.iter().for_each(|dir| std::fs::create_dir_all(dir).unwrap());
    for (path, bytes) in files {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn draw_cut(bytes: &mut Vec<u8>, draws: &Draws, at: u64) {
    if draws.below(at, 3) == 0 {
        bytes.truncate(draws.below(at + 1, bytes.len() as u64 + 1) as usize);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Name,
    Data,
}

/// What of that which was not synced is there.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Luck {
    None,
    /// As after a kill.
    All,
    /// Names are there, and lengths, but zeros for bytes.
    NamesOnly,
    DataOnly,
    /// Each by the toss of a coin; some writes are torn.
    Any,
}

const LUCKS: [Luck; 6] = [Luck::None, Luck::Any, Luck::NamesOnly, Luck::Any, Luck::All, Luck::DataOnly];

/// Records a command, then cuts the power `n` times and lets `recover` see that nothing is lost. `folder` is what it writes to.
fn cut_power(what: &str, place: &Place, folder: &str, command: &[&str], n: u64, recover: &dyn Fn(&str)) {
    let folder = place.join(folder);
    let trace = place.join("trace");
    let before = if folder.exists() { Disk::of(&folder) } else { Disk::default() };
    let ran = place.command(command).env("TPROP_TRACE", &trace).output().unwrap();
    assert!(ran.status.success(), "{what}: {ran:?}");
    let all = operations(&trace);
    std::fs::remove_file(&trace).unwrap();
    // And the folder's own name, which stands above it.
    let inside = |path: &Path| path.starts_with(&folder) || Some(path) == folder.parent();
    let ours: Vec<&Operation> = all
        .iter()
        .filter(|operation| match operation {
            Operation::Create(p) | Operation::MakeDir(p) | Operation::Sync(p) | Operation::Remove(p) => inside(p),
            Operation::Write(p, ..) | Operation::Cut(p, _) | Operation::Rename(p, _) => inside(p),
        })
        .collect();
    assert!(ours.len() > 5, "{what}: {ours:?}");
    let draws = Draws::new(11, what);
    for i in 0..n {
        // The first and the last moments, and any in between.
        let moment = match i {
            0..6 => (i as usize * 2).min(ours.len()),
            6..9 => ours.len() - (i as usize - 6),
            _ => draws.below(i, ours.len() as u64 + 1) as usize,
        };
        let luck = LUCKS[draws.below(1_000_000 + i, LUCKS.len() as u64) as usize];
        let mut disk = before.clone();
        ours[..moment].iter().for_each(|operation| disk.apply(operation));
        if folder.exists() {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        write_out(&disk.cut(luck, &draws, (i + 2) << 32));
        let next = ours.get(moment).map_or("the end".to_owned(), |operation| format!("{operation:.60?}"));
        recover(&format!("{what}: cut {i}, {luck:?}, before operation {moment} of {} ({next})", ours.len()));
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    row(&format!("power cut in {what}"), n, &format!("{} operations; 0 lost", ours.len()));
}

/// The simulation can fail: on a disk that forgets to sync, runs are lost.
#[test]
fn a_disk_that_never_syncs_loses_runs() {
    let place = place();
    let args = train(0, "run", &[]);
    let trace = place.join("trace");
    assert!(place.command(&args).env("TPROP_TRACE", &trace).output().unwrap().status.success());
    let all = operations(&trace);
    let draws = Draws::new(12, "no syncs");
    let lost = (1..6).filter(|i| {
        std::fs::remove_dir_all(place.join("run")).unwrap();
        let mut disk = Disk::default();
        let unsynced = all[..all.len() * i / 5].iter().filter(|operation| !matches!(operation, Operation::Sync(_)));
        unsynced.for_each(|operation| disk.apply(operation));
        write_out(&disk.cut(Luck::NamesOnly, &draws, 0));
        place.run(&["resume", "run", "--quiet"]).code != 0
    });
    assert_eq!(lost.count(), 5);
}

/// Whoever comes back resumes what has begun and starts anew what has not.
#[track_caller]
fn come_back(place: &Place, train: &[&str], whole: &Left, what: &str) {
    let resumable = place.join("run/settings.toml").is_file();
    let args: Vec<&str> = if resumable { vec!["resume", "run", "--quiet"] } else { train.to_vec() };
    let ran = place.run(&args);
    assert_eq!(ran.code, 0, "{what}: {ran:?}");
    same(whole, &place.join("run"), what);
}

#[test]
fn training_survives_a_power_cut() {
    let place = place();
    for kind in 0..2 {
        let args = train(kind, "run", &[]);
        place.run(&train(kind, "whole", &[])).ok();
        let whole = left(&place.join("whole"));
        let n = times(8, 200);
        cut_power(["train", "train (batch)"][kind], &place, "run", &args, n, &|what| {
            come_back(&place, &args, &whole, what)
        });
        std::fs::remove_dir_all(place.join("whole")).unwrap();
    }
}

#[test]
fn resuming_survives_a_power_cut() {
    let place = place();
    let args = train(0, "run", &[]);
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    for (what, damaged) in [("resume", false), ("resume past a damaged checkpoint", true)] {
        let killed = place.command(&args).env("TPROP_FAULT", "record.append:70=kill,save.never=kill").output().unwrap();
        assert_eq!(killed.status.code(), Some(137));
        if damaged {
            let store = tprop::checkpoint::Store::open(place.join("run/checkpoints"));
            std::fs::write(store.dir().join(&store.steps().unwrap()[0]), "damaged, and not in a small way").unwrap();
        }
        let n = times(8, 150);
        cut_power(what, &place, "run", &["resume", "run", "--quiet"], n, &|what| {
            come_back(&place, &args, &whole, what)
        });
    }
}

#[test]
fn import_export_and_report_survive_a_power_cut() {
    let place = place();
    place.run(&train(0, "model", &[])).ok();
    place.run(&["export", "model", "--out", "out"]).ok();
    let read = |name: &str| std::fs::read(place.join(name)).unwrap();
    let exported =
        ["model.safetensors", "tokenizer.json", "config.json"].map(|name| (name, read(&format!("out/{name}"))));
    let n = times(8, 150);
    cut_power("import", &place, "in", &["import", "out", "--run", "in"], n, &|what| {
        if !place.join("in/settings.toml").is_file() {
            let ran = place.run(&["import", "out", "--run", "in"]);
            assert_eq!(ran.code, 0, "{what}: {ran:?}");
        }
        let ran = place.run(&["export", "in", "--out", "again"]);
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
        assert!(read("again/model.safetensors") == exported[0].1, "{what}: other weights");
    });
    std::fs::remove_dir_all(place.join("again")).unwrap();
    let export = ["export", "model", "--out", "again"];
    cut_power("export", &place, "again", &export, n, &|what| {
        // Each file is whole or not there, before and after.
        for round in 0..2 {
            for (name, bytes) in &exported {
                let path = place.join("again").join(name);
                assert!(round == 0 && !path.exists() || std::fs::read(&path).unwrap() == *bytes, "{what}: {name}");
            }
            let ran = place.run(&export);
            assert_eq!(ran.code, 0, "{what}: {ran:?}");
        }
    });
    let report = ["report", "model", "--out", "report"];
    cut_power("report", &place, "report", &report, times(4, 50), &|what| {
        let ran = place.run(&report);
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
    });
}

#[test]
fn a_sweep_survives_a_power_cut() {
    let place = Place::new();
    place.write(
        "s.toml",
        "[set]\nsynth.tokens = 3000\nsynth.vocab = 60\nmodel.hidden = 8\ntrain.streams = 4\neval.streams = 4\n\
         train.epochs = 2\ncheckpoint.every_steps = 20\n[grid]\noptim.lr = [0.02, 0.1]\n",
    );
    let sweep = |out: &'static str| ["sweep", "s.toml", "--out", out, "--quiet"];
    place.run(&sweep("whole")).ok();
    let figures = |out: &str| {
        let text = std::fs::read_to_string(place.join(out).join("table.json")).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let drop = |list: &mut serde_json::Value, name: &str| {
            list.as_array_mut().unwrap().iter_mut().for_each(|entry| drop(entry.as_object_mut().unwrap().remove(name)));
        };
        drop(&mut value["figures"], "tokens_per_s");
        drop(&mut value["trials"], "seconds");
        value
    };
    let whole = figures("whole");
    cut_power("sweep", &place, "out", &sweep("out"), times(6, 150), &|what| {
        let ran = place.run(&sweep("out"));
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
        assert_eq!(figures("out"), whole, "{what}");
    });
}
