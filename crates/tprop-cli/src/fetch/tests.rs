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
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
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
    let files = get("wikitext-103", dir.path(), Some(&format!("{}/", server.url)), &mut |_, so_far, _| seen = so_far);
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
    let refused = fetch("ptb", dir.path(), &Server { url: format!("http://{port}") }).expect_err("refused").to_string();
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

/// What a killed download left is gone after the next call, but nobody's file that is still being written.
#[test]
fn leftovers_are_cleared() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("wikitext-103");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(".wiki.train.tokens.4194305.part"), "half").unwrap();
    std::fs::write(folder.join("mine.part"), "mine").unwrap();
    let busy = Aside::new(&folder, "busy").unwrap();
    let server = Server::new(vec![(ZIP, zip_of(&wiki()), None)]);
    fetch("wikitext-103", dir.path(), &server).expect("fetched");
    let hidden: Vec<String> = left(&folder).into_iter().filter(|name| name.ends_with(".part")).collect();
    assert_eq!(hidden, [format!(".busy.{}.part", std::process::id()), "mine.part".to_owned()]);
    drop(busy);
}

/// Counted before they are taken into memory.
#[test]
fn an_archive_of_many_entries_is_refused_by_its_last_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    // Its list is nowhere: whoever looked for it would call it damaged.
    let mut zip = vec![0; 1000];
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend([0xff; 4]);
    zip.extend([0; 10]);
    let server = Server::new(vec![(ZIP, zip, None), ("/text8/text8.zip", b"PK".to_vec(), None)]);
    let error = fetch("wikitext-103", dir.path(), &server).unwrap_err().to_string();
    assert!(error.contains("65535 entries or more"), "{error}");
    let error = fetch("text8", dir.path(), &server).unwrap_err().to_string();
    assert!(error.contains("not a zip archive"), "{error}");
    assert!(left(&dir.path().join("wikitext-103")).is_empty());
}

#[test]
fn a_download_is_bounded_in_time_by_its_size() {
    assert!(longest(5_101_618) < Duration::from_secs(240));
    assert!(longest(300 << 20) < Duration::from_secs(2 * 3600));
}
