//! Files that are not what they should be: an error that says where, never a panic.

use proptest::prelude::*;
use tprop::checkpoint::{self, Snapshot, SnapshotWriter};
use tprop::params::Visit;
use tprop::record::{self, Event, RateChange, Recorder};

fn sample() -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.meta.insert("settings".into(), "name = \"x\"\n".into());
    let mut writer = SnapshotWriter(&mut snapshot);
    let mut values: Vec<f32> = (0..12).map(|i| i as f32 / 7.0).collect();
    writer.tensor("a.weight", 3, 4, &mut values);
    writer.tensor("a.bias", 0, 12, &mut values);
    Visit::<f32>::count(&mut writer, "steps", &mut 17);
    snapshot
}

/// A safetensors file with this header, whose hash (if the header has room for one) is right.
fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    let zeros = "0".repeat(64);
    if let Some(at) = header.find(&zeros) {
        let hash = checkpoint::hex(&Sha256::digest(&bytes));
        bytes[8 + at..8 + at + 64].copy_from_slice(hash.as_bytes());
    }
    bytes
}

fn header() -> impl Strategy<Value = String> {
    let meta = prop_oneof![
        Just(format!(r#""format":"1","sha256":"{}""#, "0".repeat(64))),
        Just(format!(r#""sha256":"{}""#, "0".repeat(64))),
        Just(format!(r#""format":"2","sha256":"{}""#, "0".repeat(64))),
        Just(r#""format":"1","sha256":"00""#.to_string()),
        Just(r#""format":"1""#.to_string()),
        "[ -~]{0,30}",
    ];
    let number = prop_oneof![0u64..30, Just(u64::MAX), Just(1 << 62)];
    let tensor =
        ("[a-z.]{0,5}", "(F32|F64|I64|F9|BOOL)", prop::collection::vec(number.clone(), 0..4), number.clone(), number)
            .prop_map(|(name, kind, shape, from, to)| {
                format!(r#","{name}":{{"dtype":"{kind}","shape":{shape:?},"data_offsets":[{from},{to}]}}"#)
            });
    (meta, prop::collection::vec(tensor, 0..3))
        .prop_map(|(meta, tensors)| format!(r#"{{"__metadata__":{{{meta}}}{}}}"#, tensors.concat()))
}

/// Decoding says no in words, or gives something that encodes to a file of the same meaning.
fn decode(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Snapshot::decode(bytes) {
        Err(why) => prop_assert!(why.len() > 10, "{why}"),
        Ok(snapshot) => prop_assert_eq!(&Snapshot::decode(&snapshot.encode()).unwrap(), &snapshot),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn noise_is_no_checkpoint(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Snapshot::decode(&bytes).is_err());
    }

    #[test]
    fn strange_headers_are_refused_in_words(header in header(), data in prop::collection::vec(any::<u8>(), 0..40)) {
        decode(&with_header(&header, &data))?;
    }

    #[test]
    fn damaged_checkpoints_are_refused(at in 0usize..2000, bytes in prop::collection::vec(any::<u8>(), 1..9), cut in any::<bool>()) {
        let good = sample().encode();
        let mut bad = good.clone();
        let at = at % good.len();
        if cut {
            bad.truncate(at);
        } else {
            let end = good.len().min(at + bytes.len());
            bad[at..end].copy_from_slice(&bytes[..end - at]);
        }
        prop_assert!(bad == good || Snapshot::decode(&bad).is_err());
    }

    /// The message of a damaged file on disk names the file.
    #[test]
    fn a_damaged_file_is_named(at in 0usize..2000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("step-0000000001.safetensors");
        let mut bytes = sample().encode();
        let at = at % bytes.len();
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        let message = checkpoint::read(&path).unwrap_err().to_string();
        prop_assert!(message.contains("step-0000000001.safetensors"), "{message}");
    }

    /// Good lines, one bad one, good lines: the error says file and line.
    #[test]
    fn a_bad_line_of_a_record_is_named(before in 0u64..5, bad in "[^\n]{0,40}", after in 0u64..3) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.jsonl");
        let event = |step| Event::Rate(RateChange { step, rate: 0.5, reason: "ü\n".into() });
        let mut recorder = Recorder::create(&path).unwrap();
        (0..before).for_each(|step| recorder.append(&event(step)).unwrap());
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(bad.as_bytes());
        text.push(b'\n');
        for step in 0..after {
            text.extend(serde_json::to_vec(&event(step)).unwrap());
            text.push(b'\n');
        }
        std::fs::write(&path, &text).unwrap();
        let message = record::read(&path).unwrap_err().to_string();
        prop_assert!(message.contains("record.jsonl"), "{message}");
        prop_assert!(message.contains(&format!("line {}:", before + 1)), "{message}");
    }

    /// Bytes of any kind: read or refused; a record cut anywhere gives its whole lines.
    #[test]
    fn records_of_any_bytes_and_any_length(noise in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..1000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.jsonl");
        std::fs::write(&path, &noise).unwrap();
        if let Err(e) = record::read(&path) {
            prop_assert!(e.to_string().contains("line "), "{e}");
        }
        std::fs::remove_file(&path).unwrap();
        let events: Vec<Event> =
            (0..5).map(|step| Event::Rate(RateChange { step, rate: 0.1, reason: "r".into() })).collect();
        let mut recorder = Recorder::create(&path).unwrap();
        events.iter().for_each(|e| recorder.append(e).unwrap());
        let text = std::fs::read(&path).unwrap();
        prop_assert_eq!(recorder.len() as usize, text.len());
        let text = &text[..cut % (text.len() + 1)];
        std::fs::write(&path, text).unwrap();
        let whole = text.iter().filter(|&&b| b == b'\n').count();
        prop_assert_eq!(record::read(&path).unwrap(), &events[..whole]);
    }
}
