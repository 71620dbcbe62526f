//! A trial's process: this program again, telling its events on a pipe.
//!
//! The pipe is also what ends it. When the driver is gone, however it went, the next event finds nobody to read it, and the
//! run saves itself and ends, as after a signal. A child is no part of the driver's process group: Ctrl-C reaches the driver
//! alone, which then asks each child once, because a second signal would end a run before it has saved.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// What a child said.
#[derive(Debug)]
pub enum Said {
    /// A line of its standard output.
    Line(String),
    /// It closed its standard output: it is about to end.
    Closed,
}

/// What a child said, with the number of its process.
pub type News = (u32, Said);

/// A process at work.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    errors: JoinHandle<String>,
}

/// More of what a child says on standard error is not kept.
const KEPT: u64 = 64 << 10;

impl Child {
    /// Starts this program with other arguments.
    pub fn start(args: &[OsString], said: Sender<News>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn()?;
        let (id, out, err) = (process.id(), process.stdout.take(), process.stderr.take());
        let (out, mut err) = out.zip(err).expect("both are pipes");
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if said.send((id, Said::Line(line))).is_err() {
                    return; // nobody listens any more: the pipe closes, and the child ends
                }
            }
            let _ = said.send((id, Said::Closed));
        });
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = err.by_ref().take(KEPT).read_to_end(&mut text);
            let _ = io::copy(&mut err, &mut io::sink());
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Self { process, errors })
    }

    /// The number of its process, which no other has until this one is waited for.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to save and end.
    pub fn stop(&mut self) {
        #[cfg(unix)]
        if let Some(id) = rustix::process::Pid::from_raw(self.process.id() as i32) {
            // It may have ended by itself; until we wait for it, its number is not given to another.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        #[cfg(not(unix))]
        let _ = self.process.kill(); // it continues from its last checkpoint
    }

    /// Waits for its end; what it said last on standard error is its reason.
    pub fn end(mut self) -> io::Result<(ExitStatus, String)> {
        let status = self.process.wait()?;
        let text = self.errors.join().unwrap_or_default();
        Ok((status, reason(&text)))
    }
}

/// The last message of this program in a text, which may go over several lines, as one line; or simply the last line.
fn reason(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let ours = lines.iter().rposition(|line| line.starts_with("tprop: "));
    // Wrong arguments are reported on a line of their own, with advice below it.
    let arguments = lines.iter().position(|line| line.starts_with("error: ")).filter(|_| ours.is_none());
    let from = ours.or(arguments).unwrap_or(lines.len().saturating_sub(1));
    let to = if arguments.is_some() { from + 1 } else { lines.len() };
    let message = lines.get(from..to).unwrap_or_default().join("; ");
    let message = ["tprop: ", "error: "].iter().find_map(|p| message.strip_prefix(p)).unwrap_or(&message);
    tprop::vocab::printable(&message.chars().take(600).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn the_reason_is_the_last_message() {
        assert_eq!(reason("tprop: warning: a\nbla\ntprop: no checkpoint\n  b: bad\n\n"), "no checkpoint; b: bad");
        assert_eq!(reason("one\ntwo\x1b\n"), format!("two{}", tprop::vocab::printable("\x1b")));
        assert_eq!(
            reason("error: unexpected argument '--x'\n\nUsage: tprop eval\n\nFor more, try '--help'.\n"),
            "unexpected argument '--x'"
        );
        assert_eq!(reason(""), "");
    }
}
