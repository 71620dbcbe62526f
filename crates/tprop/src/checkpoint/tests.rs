use super::*;
use crate::params::Visit;
use crate::rng::Draws;

fn sample() -> Snapshot {
    let mut s = Snapshot::default();
    s.meta.insert("settings".into(), "a = \"sha256\"\nb = 1".into());
    let mut w = SnapshotWriter(&mut s);
    let mut values: Vec<f32> = (0..12).map(|i| i as f32 / 7.0).collect();
    w.tensor("a.weight", 3, 4, &mut values);
    w.tensor("a.bias", 0, 12, &mut values);
    Visit::<f32>::count(&mut w, "steps", &mut 17);
    Visit::<f32>::real(&mut w, "best", &mut 0.1);
    s
}

#[test]
fn what_was_written_comes_back() {
    let s = sample();
    let back = Snapshot::decode(&s.encode()).unwrap();
    assert_eq!(back, s);
    let mut r = SnapshotReader::new(&back);
    let (mut n, mut x, mut values) = (0, 0.0, vec![0f32; 12]);
    Visit::<f32>::count(&mut r, "steps", &mut n);
    Visit::<f32>::real(&mut r, "best", &mut x);
    r.tensor("a.weight", 3, 4, &mut values);
    assert_eq!((n, x, values[11]), (17, 0.1, 11.0 / 7.0));
    assert!(r.finish().is_ok());
    let mut r = SnapshotReader::new(&back);
    r.tensor("a.weight", 4, 3, &mut values);
    assert!(r.finish().unwrap_err().contains("[3, 4]"));
}

#[test]
fn no_flipped_bit_and_no_cut_is_accepted() {
    let bytes = sample().encode();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Snapshot::decode(&bad).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(Snapshot::decode(&bytes[..len]).is_err(), "length {len}");
    }
    let draws = Draws::new(1, "noise");
    for n in 0..200u64 {
        let noise: Vec<u8> = (0..n).map(|i| draws.bits(n * 1000 + i) as u8).collect();
        assert!(Snapshot::decode(&noise).is_err());
    }
}

/// A file with a later number than the one that was just written does not count among those that stay.
#[test]
fn what_was_written_last_is_never_pruned() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path());
    for step in [10, 20, 30] {
        let mut snapshot = Snapshot::default();
        snapshot.set_count("train.step", step);
        store.write(Kind::Step, &mut snapshot).unwrap();
    }
    store.prune(&Store::name(20), 1).unwrap();
    assert_eq!(store.steps().unwrap(), [Store::name(30), Store::name(20)]);
}
