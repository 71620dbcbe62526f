//! Event files for TensorBoard, made from a run's record alone, so that a resumed run has no zig-zag.
//!
//! A file is a row of frames, each around one `Event` message in the encoding of protocol buffers:
//!
//! ```text
//! frame  length u64 | masked CRC-32C of it u32 | message | masked CRC-32C of that u32       little-endian
//! Event  1 wall_time f64, 2 step i64, 3 file_version text, 5 Summary
//! Summary  1 Value …        Value  1 tag text, 2 simple_value f32
//! ```
//!
//! The file grows with the record, so that a TensorBoard that looks on sees it grow. When the record is cut (a run continues from a
//! checkpoint), a new file takes the place of the old one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tprop::record::Event;
use tprop_report::record::Record;

/// How our files begin and end; the seconds between them let a newer file come after an older one.
const PREFIX: &str = "events.out.tfevents.";
const SUFFIX: &str = ".tprop";

/// An event file that follows a record.
#[derive(Debug)]
pub struct Board {
    file: File,
    /// When a run of this many seconds would have begun; wall times count from here, so that pauses leave no gap.
    began: f64,
}

impl Board {
    /// Writes a new file for the run in `dir` with all that its record says so far, and removes older ones of ours.
    pub fn rebuild(dir: &Path) -> io::Result<Self> {
        let record = dir.join("record.jsonl");
        let events = if record.is_file() { Record::read_whole(&record)?.events() } else { Vec::new() };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let trained = events.iter().rev().find_map(scalars).map_or(0.0, |(_, seconds, _)| seconds);
        let old = ours(dir)?;
        // Never earlier than what is there, whatever the clock says: TensorBoard reads files in the order of their names.
        let last = old.iter().filter_map(|path| number(path)).max().map_or(0, |n| n + 1);
        let path = dir.join(format!("{PREFIX}{:010}{SUFFIX}", last.max(now as u64)));
        let aside = dir.join(format!(".{PREFIX}tmp"));
        let mut board = Self { file: File::create(&aside)?, began: now - trained };
        let made = board.begin(&events).and_then(|()| fs::rename(&aside, &path));
        made.inspect_err(|_| drop(fs::remove_file(&aside)))?;
        old.iter().try_for_each(fs::remove_file)?;
        Ok(board)
    }

    fn begin(&mut self, events: &[Event]) -> io::Result<()> {
        let mut message = Vec::new();
        field_f64(&mut message, 1, self.began);
        field_bytes(&mut message, 3, b"brain.Event:2");
        let first = frame(&message);
        let bytes: Vec<u8> = first.into_iter().chain(events.iter().flat_map(|event| self.encode(event))).collect();
        self.file.write_all(&bytes)
    }

    /// Adds what an event says in numbers.
    pub fn tell(&mut self, event: &Event) -> io::Result<()> {
        self.file.write_all(&self.encode(event))
    }

    fn encode(&self, event: &Event) -> Vec<u8> {
        let Some((step, seconds, numbers)) = scalars(event) else { return Vec::new() };
        let mut summary = Vec::new();
        for (tag, x) in numbers.into_iter().filter(|(_, x)| x.is_finite()) {
            let mut value = Vec::new();
            field_bytes(&mut value, 1, tag.as_bytes());
            field_f32(&mut value, 2, x as f32);
            field_bytes(&mut summary, 1, &value);
        }
        if summary.is_empty() {
            return Vec::new();
        }
        let mut message = Vec::new();
        field_f64(&mut message, 1, self.began + seconds);
        varint(&mut message, 2 << 3);
        varint(&mut message, step);
        field_bytes(&mut message, 5, &summary);
        frame(&message)
    }
}

/// Our event files in a run directory, oldest first.
fn ours(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    found.retain(|path| number(path).is_some());
    found.sort();
    Ok(found)
}

fn number(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// An update, seconds of training, and numbers under the names that TensorBoard shows.
type Scalars = (u64, f64, Vec<(&'static str, f64)>);

/// What an event says in numbers; none for one that has none.
fn scalars(event: &Event) -> Option<Scalars> {
    Some(match event {
        Event::Step(s) => {
            let numbers = vec![
                ("train/nats_per_token", s.nats),
                ("train/gradient_norm", s.norm),
                ("train/rate", s.rate),
                ("train/tokens_per_s", s.tokens_per_s),
            ];
            (s.step, s.seconds, numbers)
        }
        Event::Eval(e) => {
            let mut numbers = vec![
                ("perplexity/valid", e.valid_ppl),
                ("perplexity/train", e.train_ppl),
                ("perplexity/windows", e.window_ppl),
                ("eval/epoch", e.epoch as f64),
            ];
            if let Some(c) = &e.coupling {
                numbers.extend([
                    ("coupling/objective", c.objective),
                    ("coupling/penalty", c.penalty),
                    ("coupling/residual_mean", c.residual_mean),
                    ("coupling/residual_max", c.residual_max),
                    ("coupling/residual_relative", c.residual_relative),
                    ("coupling/dual_norm", c.dual_norm),
                    ("coupling/state_move", c.state_move),
                    ("coupling/lambda", c.lambda),
                ]);
            }
            (e.step, e.seconds, numbers)
        }
        Event::Meter(m) => {
            let numbers = vec![
                ("meter/error", m.error),
                ("meter/cosine", m.cosine),
                ("meter/error_cell_and_embedding", m.inner_error),
                ("meter/cosine_cell_and_embedding", m.inner_cosine),
            ];
            (m.step, m.seconds, numbers)
        }
        Event::End(e) => (e.step, e.seconds, e.test_ppl.map(|x| ("perplexity/test", x)).into_iter().collect()),
        _ => return None,
    })
}

fn frame(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(message);
    bytes.extend(masked(message).to_le_bytes());
    bytes
}

/// A checksum of bytes that contain checksums would be weak, so the format turns and shifts it.
fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), a bit at a time; the files are small.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc, b| (0..8).fold(crc ^ u32::from(*b), bit))
}

fn varint(bytes: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
}

fn field_f64(bytes: &mut Vec<u8>, field: u64, x: f64) {
    varint(bytes, field << 3 | 1);
    bytes.extend(x.to_le_bytes());
}

fn field_f32(bytes: &mut Vec<u8>, field: u64, x: f32) {
    varint(bytes, field << 3 | 5);
    bytes.extend(x.to_le_bytes());
}

fn field_bytes(bytes: &mut Vec<u8>, field: u64, content: &[u8]) {
    varint(bytes, field << 3 | 2);
    varint(bytes, content.len() as u64);
    bytes.extend(content);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprop::record::{CouplingMeans, Eval, Recorder, Step};

    #[test]
    fn checksums_are_castagnolis() {
        // The check value of the catalogue, and the test vectors of RFC 3720.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
    }

    /// A small reader, written against the format rather than against the writer.
    struct Reader<'a>(&'a [u8]);

    impl<'a> Reader<'a> {
        fn take(&mut self, n: usize) -> &'a [u8] {
            let (head, rest) = self.0.split_at(n);
            self.0 = rest;
            head
        }

        fn varint(&mut self) -> u64 {
            let mut n = 0;
            for shift in (0..).step_by(7) {
                let byte = self.take(1)[0];
                n |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    return n;
                }
            }
            unreachable!()
        }

        /// Field number and content; numbers as their bytes.
        fn field(&mut self) -> Option<(u64, Vec<u8>)> {
            if self.0.is_empty() {
                return None;
            }
            let key = self.varint();
            let content = match key & 7 {
                0 => self.varint().to_le_bytes().to_vec(),
                1 => self.take(8).to_vec(),
                2 => {
                    let n = self.varint() as usize;
                    self.take(n).to_vec()
                }
                5 => self.take(4).to_vec(),
                other => panic!("wire type {other}"),
            };
            Some((key >> 3, content))
        }

        fn fields(mut self) -> Vec<(u64, Vec<u8>)> {
            std::iter::from_fn(|| self.field()).collect()
        }
    }

    type Scalar = (u64, String, f32);

    /// All scalars of an event file, and how many seconds they span.
    fn read_back(bytes: &[u8]) -> (Vec<Scalar>, f64) {
        let unmask = |crc: u32| crc.wrapping_sub(0xa282_ead8).rotate_left(15);
        let u32_of = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
        let mut rest = Reader(bytes);
        let (mut scalars, mut times) = (Vec::new(), Vec::new());
        while !rest.0.is_empty() {
            let length = rest.take(8);
            assert_eq!(unmask(u32_of(rest.take(4))), crc32c(length));
            let message = rest.take(u64::from_le_bytes(length.try_into().unwrap()) as usize);
            assert_eq!(unmask(u32_of(rest.take(4))), crc32c(message));
            let fields = Reader(message).fields();
            let get = |n: u64| fields.iter().find(|f| f.0 == n).map(|f| f.1.as_slice());
            times.push(f64::from_le_bytes(get(1).unwrap().try_into().unwrap()));
            if times.len() == 1 {
                assert_eq!(get(3), Some(&b"brain.Event:2"[..]));
                continue;
            }
            let step = u64::from_le_bytes(get(2).unwrap().try_into().unwrap());
            for (number, value) in Reader(get(5).unwrap()).fields() {
                assert_eq!(number, 1);
                let value = Reader(&value).fields();
                let tag = String::from_utf8(value[0].1.clone()).unwrap();
                scalars.push((step, tag, f32::from_le_bytes(value[1].1.as_slice().try_into().unwrap())));
            }
        }
        assert!(times.is_sorted(), "{times:?}");
        (scalars, times[times.len() - 1] - times[0])
    }

    fn step(step: u64, nats: f64) -> Event {
        let (epoch, tokens, seconds) = (1, step * 10, step as f64);
        Event::Step(Step { epoch, step, tokens, seconds, nats, norm: 0.5, rate: 0.05, tokens_per_s: 10.0 })
    }

    fn eval(step: u64) -> Event {
        let coupling = CouplingMeans {
            objective: 2.5,
            penalty: 0.125,
            residual_mean: 1.0,
            residual_max: 2.0,
            residual_relative: 0.25,
            dual_norm: f64::NAN,
            state_move: 0.5,
            lambda: 0.1,
            sweeps: None,
        };
        Event::Eval(Box::new(Eval {
            epoch: 1,
            step,
            tokens: step * 10,
            seconds: step as f64 + 0.5,
            train_ppl: 20.25,
            window_ppl: 21.0,
            valid_ppl: 22.125,
            rate: 0.05,
            best: true,
            window_ppl_by_position: vec![1.0],
            coupling: Some(coupling),
        }))
    }

    #[test]
    fn what_is_told_can_be_read_back() {
        let place = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::create(&place.path().join("record.jsonl")).unwrap();
        let mut board = Board::rebuild(place.path()).unwrap();
        for event in [step(300, 3.25), eval(300), step(70_000, 2.75)] {
            recorder.append(&event).unwrap();
            board.tell(&event).unwrap();
        }
        let [file] = &ours(place.path()).unwrap()[..] else { panic!("one file") };
        let (grown, span) = read_back(&fs::read(file).unwrap());
        assert_eq!(span, 70_000.0);
        assert_eq!(grown[0], (300, "train/nats_per_token".into(), 3.25));
        assert!(grown.contains(&(300, "perplexity/valid".into(), 22.125)));
        assert!(grown.contains(&(300, "coupling/residual_relative".into(), 0.25)));
        assert!(!grown.iter().any(|s| s.1 == "coupling/dual_norm"), "what is no number is left out");
        assert_eq!(grown.last().unwrap(), &(70_000, "train/tokens_per_s".into(), 10.0));
        assert_eq!(grown.len(), 4 + 11 + 4);
    }

    #[test]
    fn a_cut_record_leaves_one_file_without_what_was_cut() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("record.jsonl");
        let mut recorder = Recorder::create(&path).unwrap();
        recorder.append(&step(1, 3.0)).unwrap();
        let kept = recorder.len();
        let mut board = Board::rebuild(place.path()).unwrap();
        let first = ours(place.path()).unwrap();
        for event in [step(2, 2.0), step(3, 1.5)] {
            recorder.append(&event).unwrap();
            board.tell(&event).unwrap();
        }
        fs::write(place.path().join("events.out.tfevents.5.other"), "not ours").unwrap();
        Recorder::resume(&path, kept).unwrap();
        let mut board = Board::rebuild(place.path()).unwrap();
        board.tell(&step(2, 2.25)).unwrap();
        let second = ours(place.path()).unwrap();
        assert!(second.len() == 1 && second > first, "{first:?} {second:?}");
        let (scalars, _) = read_back(&fs::read(&second[0]).unwrap());
        let nats: Vec<_> = scalars.iter().filter(|s| s.1 == "train/nats_per_token").map(|s| (s.0, s.2)).collect();
        assert_eq!(nats, [(1, 3.0), (2, 2.25)]);
        assert!(place.path().join("events.out.tfevents.5.other").is_file());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 3);
    }
}
