//! Disks that are full, too small or cannot be written.

use tprop::checkpoint::Store;

use crate::bench::{finish, left, place, row, same, train};
use crate::common::small;

/// During the 1st, 2nd and 10th save, in the middle of the file and at its sync, and while the record is written.
#[test]
fn a_full_disk_leaves_the_old_checkpoint() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let mut n = 0;
    for fault in [
        "save.mid_write:1",
        "save.mid_write:2",
        "save.mid_write:10",
        "save.after_write:2",
        "save.after_sync:10",
        "record.append:1",
        "record.append:9",
        "record.append:60",
    ] {
        let args = train(0, "run", &[]);
        let ran = place.command(&args).env("TPROP_FAULT", format!("{fault}=full")).output().unwrap();
        let message = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(5), "{fault}: {message}");
        assert!(message.contains("cannot be written") && message.contains(" free"), "{fault}: {message}");
        assert!(message.contains(" needed") || fault.starts_with("record"), "{fault}: {message}");
        assert_eq!(message.lines().count(), 1, "{fault}: {message}");
        let first = fault.ends_with(":1");
        if !first {
            // Whatever was whole before is whole still, and half a file is not left behind.
            let store = Store::open(place.join("run/checkpoints"));
            assert!(store.newest().unwrap().bad.is_empty(), "{fault}");
            let mut left = std::fs::read_dir(store.dir()).unwrap();
            assert!(left.all(|e| !e.unwrap().path().to_string_lossy().ends_with(".tmp")), "{fault}");
        }
        finish(&place, &args, "run");
        same(&whole, &place.join("run"), fault);
        std::fs::remove_dir_all(place.join("run")).unwrap();
        n += 1;
    }
    row(
        "disk full during a save or while appending the record",
        n,
        "old checkpoint intact, exit 5, then byte-identical",
    );
}

/// Checkpoints that are there make room for those to come: a run may always continue where it has been.
#[test]
fn a_run_goes_on_with_room_for_one_more_checkpoint() {
    let place = place();
    place.run(&train(0, "run", &[])).ok();
    let store = Store::open(place.join("run/checkpoints"));
    let one = store.newest().unwrap().snapshot.size();
    let free = |bytes: u64| format!("disk.free={}", bytes + (1 << 20));
    let more = ["resume", "run", "--quiet", "train.epochs=4", "--allow-change", "train.epochs"];
    let resume = |free: String| place.command(&more).env("TPROP_FAULT", free).output().unwrap();
    assert!(store.bytes() >= 3 * one, "{} for {one}", store.bytes());
    assert_eq!(resume(free(one / 2)).status.code(), Some(5));
    assert_eq!(resume(free(2 * one)).status.code(), Some(0));
}

#[test]
fn too_small_a_disk_is_refused_at_the_start() {
    let place = place();
    let before = place.files();
    let ran = place.command(&train(0, "run", &[])).env("TPROP_FAULT", "disk.free=5000").output().unwrap();
    let message = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(5), "{message}");
    assert!(message.contains("5000 bytes") && message.contains("needed"), "{message}");
    assert_eq!(place.files(), before);
    // Resuming looks too, before anything changes.
    let args = train(0, "run", &[]);
    assert_eq!(
        place.command(&args).env("TPROP_FAULT", "record.append:9=kill").output().unwrap().status.code(),
        Some(137)
    );
    let ran = place.command(&["resume", "run"]).env("TPROP_FAULT", "disk.free=5000").output().unwrap();
    assert_eq!(ran.status.code(), Some(5));
    place.run(&["resume", "run", "--quiet"]).ok();
    row("too small a disk", 2, "refused before anything is written, exit 5, needed and free bytes");
}

#[test]
fn places_that_cannot_be_written_are_refused_at_once() {
    let place = place();
    place.write("file", "x");
    std::fs::create_dir(place.join("other")).unwrap();
    place.write("other/thesis.txt", "x");
    let before = place.files();
    // A text that would take minutes to read: the place is looked at first.
    let args = |run: &'static str| small(&["--run", run]);
    place.run(&args("file")).refused(2, "not a directory");
    place.run(&args("file/run")).refused(2, "not a directory");
    place.run(&args("other")).refused(2, "exists and is not empty");
    place.run(&args("/proc/no/run")).refused(5, "cannot be written");
    place.run(&["resume", "file"]).refused(2, "no such run");
    place.run(&["resume", "nowhere"]).refused(2, "no such run");
    place.run(&["resume", "other"]).refused(2, "not a run");
    assert_eq!(place.files(), before);
    // Whoever may write everywhere (root, in a container) cannot be kept out by permissions.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let closed = place.join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o555)).unwrap();
        if std::fs::write(closed.join("probe"), "x").is_err() {
            place.run(&args("closed/run")).refused(5, "cannot be written");
            place.run(&args("closed")).refused(5, "cannot be written");
        }
    }
    // A missing parent is made.
    place.run(&small(&["--run", "a/b/c", "--quiet"])).ok();
    row("read-only, a file in its place, not empty, /proc", 8, "all refused in one sentence, exit 2 or 5");
}
